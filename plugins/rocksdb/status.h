// Answers of Thermocline's C interface as RocksDB's.
//
// Threads: any.
#pragma once

#include "../tiers/tiers.h"
#include "rocksdb/io_status.h"

namespace thermocline {

// It keeps the answer's text.
rocksdb::IOStatus ToIOStatus(const Answer& answer);

}  // namespace thermocline
