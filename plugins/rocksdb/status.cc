// See status.h.
#include "status.h"

namespace thermocline {

using rocksdb::IOStatus;

IOStatus ToIOStatus(const Answer& answer) {
  switch (answer.status()) {
    case THERMOCLINE_OK:
      return IOStatus::OK();
    case THERMOCLINE_NOT_FOUND:
      return IOStatus::NotFound(answer.text());
    case THERMOCLINE_OUT_OF_SPACE: {
      // The host's recovery tries again once there is room.
      IOStatus status = IOStatus::NoSpace(answer.text());
      status.SetRetryable(true);
      return status;
    }
    case THERMOCLINE_INVALID:
      // The host copies instead of linking.
      return IOStatus::NotSupported(answer.text());
    case THERMOCLINE_CORRUPT:
      return IOStatus::Corruption(answer.text());
    default:
      return IOStatus::IOError(answer.text());
  }
}

}  // namespace thermocline
