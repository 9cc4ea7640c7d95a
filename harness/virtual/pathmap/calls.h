// The system calls that name files, and what each does to them.
#pragma once

#include <cstddef>

namespace pathmap {

constexpr int kNone = -1;

enum class Follow {
    always,
    never,
    unless_flag, // AT_SYMLINK_NOFOLLOW in argument `flags`
    if_flag,     // AT_SYMLINK_FOLLOW in argument `flags`
    open_flags,  // O_NOFOLLOW, or O_CREAT with O_EXCL, in argument `flags`
};

// Where the file system is read-only on the phone, only `read` and what would fail anyway is let through.
enum class Effect { read, open, check, create, remove, modify };

struct PathArgument {
    int folder; // index of the argument with the descriptor a relative path starts from; kNone: the current folder
    int path;   // index of the argument; kNone: there is no such path
    Follow follow;
    Effect effect;
};

struct Call {
    int number;
    PathArgument first;
    PathArgument second;
    int flags; // index of the argument that `follow` and `effect` look at
};

// By number; nullptr if that call names no file.
const Call* find_call(long number);

struct Numbers {
    const int* begin_;
    std::size_t size_;

    const int* begin() const { return begin_; }

    const int* end() const { return begin_ + size_; }
};

// What `find_call` knows; what else is looked at; what is looked at only where storage has a size of its own.
Numbers path_calls();
Numbers other_calls();
Numbers storage_calls();

} // namespace pathmap
