// See status.h.
#include "status.h"

#include <cerrno>
#include <cstring>

namespace thermocline::of_leveldb {

using leveldb::Status;

Status ToStatus(const Answer& answer) {
  switch (answer.status()) {
    case THERMOCLINE_OK:
      return Status::OK();
    case THERMOCLINE_NOT_FOUND:
      return Status::NotFound(answer.text());
    case THERMOCLINE_INVALID:
      return Status::InvalidArgument(answer.text());
    case THERMOCLINE_CORRUPT:
      return Status::Corruption(answer.text());
    default:
      return Status::IOError(answer.text());
  }
}

bool IsFull(const Status& status) {
  return status.IsIOError() && status.ToString().find(std::strerror(ENOSPC)) != std::string::npos;
}

}  // namespace thermocline::of_leveldb
