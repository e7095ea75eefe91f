// The files that a host has open to read, so that those which moved are opened where they lie now.
//
// A reader that reads notices a move by itself (file_reads.h). One that is not read any more would
// keep the space of the place that it left, which the tiers take for free: a host keeps thousands of
// tables open. So all of them follow before a new file is made, which needs the space. They tell of
// their reads then, too: a new table is when the library looks how cold the others are.
//
// Threads: any. A reader is there until `Remove` returns.
#pragma once

#include <mutex>
#include <unordered_set>

namespace thermocline {

class OpenReaders {
 public:
  class Reader {
   public:
    // Opens the file where it lies, if that is elsewhere now.
    virtual void FollowIfMoved() const = 0;
    // Tells the library of the reads that it does not know of.
    virtual void TellReads() const = 0;

   protected:
    ~Reader() = default;
  };

  // A reader is known for as long as this lives. It is the last member of its reader, so that the
  // others are there for as long.
  class Known {
   public:
    Known(OpenReaders* all, const Reader* reader) : all_(all), reader_(reader) {
      const std::lock_guard<std::mutex> guard(all_->lock_);
      all_->readers_.insert(reader_);
    }
    Known(const Known&) = delete;
    Known& operator=(const Known&) = delete;
    ~Known() {
      const std::lock_guard<std::mutex> guard(all_->lock_);
      all_->readers_.erase(reader_);
    }

   private:
    OpenReaders* const all_;
    const Reader* const reader_;
  };

  void FollowAll() {
    const std::lock_guard<std::mutex> guard(lock_);
    for (const Reader* reader : readers_) {
      reader->TellReads();
      reader->FollowIfMoved();
    }
  }

  void TellAllReads() {
    const std::lock_guard<std::mutex> guard(lock_);
    for (const Reader* reader : readers_) reader->TellReads();
  }

 private:
  std::mutex lock_;
  std::unordered_set<const Reader*> readers_;
};

}  // namespace thermocline
