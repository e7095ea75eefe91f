// See tiers.h.
#include "tiers.h"

#include <cstdio>
#include <map>
#include <mutex>

namespace thermocline {

Answer::Answer(thermocline_status status, char* why) : status_(status) {
  if (why != nullptr) text_ = why;
  thermocline_free(why);
}

Answer PlaceOf(const thermocline_file* file, Access access, std::string* place) {
  char* text = nullptr;
  char* why = nullptr;
  const thermocline_status status = access == Access::kRead
                                        ? thermocline_file_place_to_read(file, &text, &why)
                                        : thermocline_file_place(file, &text, &why);
  if (text != nullptr) *place = text;
  thermocline_free(text);
  return Answer(status, why);
}

Answer Synced(const thermocline_file* file) {
  char* why = nullptr;
  const thermocline_status status = thermocline_file_synced(file, &why);
  return Answer(status, why);
}

Answer ContinueElsewhere(const thermocline_file* file, uint64_t len) {
  char* why = nullptr;
  const thermocline_status status = thermocline_file_continue_elsewhere(file, len, &why);
  return Answer(status, why);
}

std::shared_ptr<Tiers> Tiers::Open(const std::string& uri, std::string* why) {
  // Never destroyed: a host may close its last file after static destructors have run.
  static auto* const lock = new std::mutex;
  static auto* const open = new std::map<std::string, std::weak_ptr<Tiers>>;
  const std::lock_guard<std::mutex> guard(*lock);
  if (std::shared_ptr<Tiers> tiers = (*open)[uri].lock()) return tiers;
  thermocline_tiers* opened = nullptr;
  char* text = nullptr;
  const thermocline_status status = thermocline_tiers_open(uri.c_str(), &opened, &text);
  const Answer answer(status, text);
  if (!answer.IsOk()) {
    *why = answer.text();
    return nullptr;
  }
  std::shared_ptr<Tiers> tiers(new Tiers(opened));
  (*open)[uri] = tiers;
  return tiers;
}

Tiers::~Tiers() {
  char* why = nullptr;
  const thermocline_status status = thermocline_tiers_close(tiers_, &why);
  const Answer closed(status, why);
  if (!closed.IsOk()) std::fprintf(stderr, "thermocline: %s\n", closed.text().c_str());
}

Answer Tiers::CreateFile(const Path& path, const thermocline_new_file& of,
                         OpenFile* file) const {
  readers_.FollowAll();
  thermocline_file* opened = nullptr;
  char* why = nullptr;
  const thermocline_status status =
      thermocline_tiers_create_file(tiers_, path.c_str(), &of, &opened, &why);
  file->reset(opened);
  return Answer(status, why);
}

Answer Tiers::OpenToRead(const Path& path, OpenFile* file) const {
  thermocline_file* opened = nullptr;
  char* why = nullptr;
  const thermocline_status status =
      thermocline_tiers_open_file(tiers_, path.c_str(), &opened, &why);
  file->reset(opened);
  return Answer(status, why);
}

Answer Tiers::OpenToWrite(const Path& path, OpenFile* file) const {
  thermocline_file* opened = nullptr;
  char* why = nullptr;
  const thermocline_status status =
      thermocline_tiers_open_file_to_write(tiers_, path.c_str(), &opened, &why);
  file->reset(opened);
  return Answer(status, why);
}

Answer Tiers::Rename(const Path& from, const Path& to) const {
  char* why = nullptr;
  const thermocline_status status =
      thermocline_tiers_rename(tiers_, from.c_str(), to.c_str(), &why);
  return Answer(status, why);
}

Answer Tiers::Link(const Path& from, const Path& to) const {
  char* why = nullptr;
  const thermocline_status status = thermocline_tiers_link(tiers_, from.c_str(), to.c_str(), &why);
  return Answer(status, why);
}

Answer Tiers::Delete(const Path& path) const {
  char* why = nullptr;
  const thermocline_status status = thermocline_tiers_delete(tiers_, path.c_str(), &why);
  return Answer(status, why);
}

Answer Tiers::Truncate(const Path& path, uint64_t len) const {
  char* why = nullptr;
  const thermocline_status status = thermocline_tiers_truncate(tiers_, path.c_str(), len, &why);
  return Answer(status, why);
}

Answer Tiers::List(const Path& directory, Entries* entries) const {
  thermocline_entries* found = nullptr;
  char* why = nullptr;
  const thermocline_status status = thermocline_tiers_list(tiers_, directory.c_str(), &found, &why);
  entries->reset(found);
  return Answer(status, why);
}

Answer Tiers::SyncDirectory(const Path& directory) const {
  char* why = nullptr;
  const thermocline_status status =
      thermocline_tiers_sync_directory(tiers_, directory.c_str(), &why);
  return Answer(status, why);
}

Answer Tiers::RemoveDirectory(const Path& directory) const {
  char* why = nullptr;
  const thermocline_status status =
      thermocline_tiers_remove_directory(tiers_, directory.c_str(), &why);
  return Answer(status, why);
}

Answer Tiers::ReleaseDirectory(const Path& directory) const {
  char* why = nullptr;
  const thermocline_status status =
      thermocline_tiers_release_directory(tiers_, directory.c_str(), &why);
  return Answer(status, why);
}

Answer Tiers::SetLevel(const Path& path, int level) const {
  char* why = nullptr;
  const thermocline_status status = thermocline_tiers_set_level(tiers_, path.c_str(), level, &why);
  return Answer(status, why);
}

Answer Tiers::FreeSpace(const Path& directory, uint64_t* bytes) const {
  char* why = nullptr;
  const thermocline_status status =
      thermocline_tiers_free_space(tiers_, directory.c_str(), bytes, &why);
  return Answer(status, why);
}

Answer Tiers::Stats(std::string* json) const {
  readers_.TellAllReads();
  char* text = nullptr;
  char* why = nullptr;
  const thermocline_status status = thermocline_tiers_stats(tiers_, &text, &why);
  if (text != nullptr) *json = text;
  thermocline_free(text);
  return Answer(status, why);
}

}  // namespace thermocline
