// LevelDB's log of information, whose lines the tap sees on their way. Now and then, and when its
// database is closed, it gets a line of figures.
//
// Threads: any.
#pragma once

#include <cstdarg>
#include <memory>
#include <string>

#include "../tiers/due.h"
#include "../tiers/tiers.h"
#include "leveldb/env.h"

namespace thermocline::of_leveldb {

class TieredEnv;

class TappedLogger : public leveldb::Logger {
 public:
  TappedLogger(TieredEnv* owner, std::shared_ptr<Tiers> tiers, const std::string& directory,
               std::unique_ptr<leveldb::Logger> logger);
  ~TappedLogger() override;

  void Logv(const char* format, va_list arguments) override;

  const std::string& directory() const { return directory_; }
  void LogFigures();

 private:
  TieredEnv* const owner_;
  const std::shared_ptr<Tiers> tiers_;
  const std::string directory_;
  const std::unique_ptr<leveldb::Logger> logger_;
  FiguresDue figures_;
};

}  // namespace thermocline::of_leveldb
