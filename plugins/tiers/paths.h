// What the paths of a host's files say.
//
// Threads: any.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <string>

namespace thermocline {

inline std::string DirectoryOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? std::string(".") : path.substr(0, slash);
}

// A link is a managed file's name: a raw call would reach the link, not the file.
inline bool IsLink(const std::string& path) {
  struct stat found;
  return lstat(path.c_str(), &found) == 0 && S_ISLNK(found.st_mode);
}

inline bool EndsWith(const std::string& path, const std::string& suffix) {
  return path.size() >= suffix.size() &&
         path.compare(path.size() - suffix.size(), suffix.size(), suffix) == 0;
}

inline bool IsLog(const std::string& path) { return EndsWith(path, ".log"); }

inline bool IsManifest(const std::string& path) {
  const size_t slash = path.rfind('/');
  return path.compare(slash == std::string::npos ? 0 : slash + 1, 9, "MANIFEST-") == 0;
}

}  // namespace thermocline
