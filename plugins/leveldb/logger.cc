// See logger.h.
#include "logger.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "../taps/leveldb_lines.h"
#include "../tiers/level_context.h"
#include "env.h"

namespace thermocline::of_leveldb {

namespace {

// The longest part of a line in which the tap finds something.
constexpr size_t kLineBytesMax = 256;

// The compaction that this thread has interrupted to write a memtable out.
thread_local LevelContext interrupted;

void See(const LineSays& says) {
  const bool is_flush = says.origin == Origin::kFlush;
  if (says.what == LineSays::What::kJobBegins) {
    if (is_flush) interrupted = CurrentContext();
    BeginJob(says.level, says.origin);
  } else if (says.what == LineSays::What::kJobEnds) {
    EndJob();
    if (is_flush) BeginJob(interrupted.level, interrupted.origin);
    interrupted = {};
  }
}

void SeeLine(const char* format, va_list arguments) {
  char line[kLineBytesMax];
  va_list copy;
  va_copy(copy, arguments);
  const int len = std::vsnprintf(line, sizeof(line), format, copy);
  va_end(copy);
  if (len <= 0) return;
  See(ReadLevelDbLine(line, std::min<size_t>(static_cast<size_t>(len), sizeof(line) - 1)));
}

// As leveldb::Log, which the library keeps to itself.
__attribute__((format(printf, 2, 3))) void LogTo(leveldb::Logger* logger, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  logger->Logv(format, arguments);
  va_end(arguments);
}

}  // namespace

TappedLogger::TappedLogger(TieredEnv* owner, std::shared_ptr<Tiers> tiers,
                           const std::string& directory, std::unique_ptr<leveldb::Logger> logger)
    : owner_(owner), tiers_(std::move(tiers)), directory_(directory), logger_(std::move(logger)) {}

TappedLogger::~TappedLogger() { owner_->Forget(this); }

void TappedLogger::LogFigures() {
  std::string json;
  const Answer answer = tiers_->Stats(&json);
  const std::string& text = answer.IsOk() ? json : answer.text();
  LogTo(logger_.get(), "[thermocline] %s", text.c_str());
}

void TappedLogger::Logv(const char* format, va_list arguments) {
  SeeLine(format, arguments);
  logger_->Logv(format, arguments);
  if (figures_.Take()) LogFigures();
}

}  // namespace thermocline::of_leveldb
