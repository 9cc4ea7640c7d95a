// Registers and memory of a stopped thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <sys/types.h>
#include <sys/user.h>

namespace pathmap {

using Registers = user_regs_struct;

bool read_registers(pid_t thread, Registers& registers);
bool write_registers(pid_t thread, const Registers& registers);

// False unless all of it was transferred.
bool read_memory(pid_t thread, std::uint64_t address, void* data, std::size_t size);
bool write_memory(pid_t thread, std::uint64_t address, const void* data, std::size_t size);

// A string that ends within `limit` bytes.
std::optional<std::string> read_string(pid_t thread, std::uint64_t address, std::size_t limit);

// The n-th argument of a system call, 0 to 5.
unsigned long long& argument(Registers& registers, int index);

// Free bytes of a thread's stack, below what it uses (and the 128 bytes that x86-64 lets it use below its pointer).
class Scratch {
  public:
    explicit Scratch(pid_t thread, const Registers& registers) : thread_(thread), next_(registers.rsp - 128) {}

    // The address of a copy there; 0 if the memory cannot be written.
    std::uint64_t put(const void* data, std::size_t size);

    std::uint64_t put(const std::string& text) { return put(text.c_str(), text.size() + 1); }

  private:
    pid_t thread_;
    std::uint64_t next_;
};

} // namespace pathmap
