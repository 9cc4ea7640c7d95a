// Failures are values. `Status` is success or a Fault, `Result<T>` is a T or a Fault; neither may be ignored.
#pragma once

#include "exit_codes.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace snapgate {

// What went wrong, in the words of the error record.
struct Fault {
    ExitCode code = ExitCode::kInternal;
    std::string where;
    std::string what;
    std::string found;
    std::string expected;
    std::string next_step;
    std::optional<std::uint64_t> qnn_code = {};
};

class [[nodiscard]] Status {
  public:
    Status() = default;

    Status(Fault fault) : fault_(std::make_unique<Fault>(std::move(fault))) {}

    explicit operator bool() const noexcept { return fault_ == nullptr; }

    const Fault& fault() const& noexcept { return *fault_; }

    Fault fault() && noexcept { return std::move(*fault_); }

  private:
    std::unique_ptr<Fault> fault_; // null: success, which costs no allocation
};

template <typename T>
class [[nodiscard]] Result {
  public:
    Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}

    Result(Fault fault) : state_(std::in_place_index<1>, std::make_unique<Fault>(std::move(fault))) {}

    explicit operator bool() const noexcept { return state_.index() == 0; }

    T& operator*() & { return std::get<0>(state_); }

    const T& operator*() const& { return std::get<0>(state_); }

    T&& operator*() && { return std::get<0>(std::move(state_)); }

    T* operator->() { return &std::get<0>(state_); }

    const T* operator->() const { return &std::get<0>(state_); }

    const Fault& fault() const& { return *std::get<1>(state_); }

    Fault fault() && { return std::move(*std::get<1>(state_)); }

  private:
    std::variant<T, std::unique_ptr<Fault>> state_;
};

} // namespace snapgate

// Hands a failure to the caller; goes on after success.
#define SNAPGATE_TRY(expression)                                                                                       \
    do {                                                                                                               \
        ::snapgate::Status snapgate_try_status = (expression);                                                         \
        if (!snapgate_try_status) {                                                                                    \
            return std::move(snapgate_try_status).fault();                                                             \
        }                                                                                                              \
    } while (false)
