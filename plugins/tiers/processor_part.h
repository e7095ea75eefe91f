// Which part of a count a thread uses that all threads add to.
//
// Threads on different processors use different parts, each on a cache line of its own, so that
// none waits for the line of another. Who wants the count goes through all parts.
//
// There are eight parts, because each open file has its own. On a machine with more processors some
// share a part: what is counted there has to bear two threads at once, which is slower, and no less
// right.
//
// Threads: any. A thread may go on on another processor right after it asked; then it uses a line
// that is not its own for once.
#pragma once

#include <sched.h>

#include <cstddef>

namespace thermocline {

constexpr size_t kCacheLineBytes = 64;
constexpr unsigned kProcessorParts = 8;

// -1 where the system does not tell: one part then.
inline unsigned ProcessorPart() {
  return static_cast<unsigned>(sched_getcpu()) % kProcessorParts;
}

}  // namespace thermocline
