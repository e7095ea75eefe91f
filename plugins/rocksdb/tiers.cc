// See tiers.h.
#include "tiers.h"

#include <cstdio>
#include <map>
#include <mutex>

namespace thermocline {

using rocksdb::IOStatus;

Answer::Answer(thermocline_status status, char* why) : status_(status) {
  if (why != nullptr) text_ = why;
  thermocline_free(why);
}

IOStatus Answer::ToIOStatus() const {
  switch (status_) {
    case THERMOCLINE_OK:
      return IOStatus::OK();
    case THERMOCLINE_NOT_FOUND:
      return IOStatus::NotFound(text_);
    case THERMOCLINE_OUT_OF_SPACE: {
      // The host's recovery tries again once there is room.
      IOStatus status = IOStatus::NoSpace(text_);
      status.SetRetryable(true);
      return status;
    }
    case THERMOCLINE_INVALID:
      // The host copies instead of linking.
      return IOStatus::NotSupported(text_);
    case THERMOCLINE_CORRUPT:
      return IOStatus::Corruption(text_);
    default:
      return IOStatus::IOError(text_);
  }
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

Answer Tiers::Stats(std::string* json) const {
  char* text = nullptr;
  char* why = nullptr;
  const thermocline_status status = thermocline_tiers_stats(tiers_, &text, &why);
  if (text != nullptr) *json = text;
  thermocline_free(text);
  return Answer(status, why);
}

}  // namespace thermocline
