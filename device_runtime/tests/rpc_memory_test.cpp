#include "aligned_buffer.h"
#include "memory_registration.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

using namespace snapgate;

namespace {

// What the functions below were asked, and what they answer.
struct Script {
    std::vector<std::string> calls;
    void* memory = nullptr;
    int fd = 7;
} script;

void* alloc(int heap, std::uint32_t flags, int n_bytes) {
    script.calls.push_back("alloc " + std::to_string(heap) + " " + std::to_string(flags) + " " +
                           std::to_string(n_bytes));
    return script.memory;
}

void* alloc2(int heap, std::uint32_t flags, std::size_t n_bytes) {
    script.calls.push_back("alloc2 " + std::to_string(heap) + " " + std::to_string(flags) + " " +
                           std::to_string(n_bytes));
    return script.memory;
}

void give_back(void* memory) {
    script.calls.push_back("free " + std::to_string(reinterpret_cast<std::uintptr_t>(memory)));
}

int to_fd(void* memory) {
    script.calls.push_back("to_fd " + std::to_string(reinterpret_cast<std::uintptr_t>(memory)));
    return script.fd;
}

alignas(128) std::byte block[512];

qnn::abi::ErrorCode register_memory(qnn::abi::Handle, const qnn::abi::MemDescriptor* descriptors, std::uint32_t n,
                                    qnn::abi::Handle* handles) {
    const auto* shared = static_cast<const qnn::abi::HtpSharedBuffer*>(descriptors->custom);
    script.calls.push_back("register " + std::to_string(n) + " of " + std::to_string(shared->size) + " at " +
                           std::to_string(shared->offset) + " fd " + std::to_string(shared->fd));
    *handles = reinterpret_cast<qnn::abi::Handle>(script.calls.size());
    return 0;
}

qnn::abi::ErrorCode deregister_memory(const qnn::abi::Handle* handles, std::uint32_t) {
    script.calls.push_back("deregister " + std::to_string(reinterpret_cast<std::uintptr_t>(*handles)));
    return 0;
}

constexpr std::uint64_t kTwoGiB = 1ULL << 31;

} // namespace

TEST_CASE("rpcmem_alloc2 is taken wherever there is one, and alone from 2 GiB on") {
    script = {{}, block, 7};
    const RpcMemory old({alloc, nullptr, give_back, to_fd});
    CHECK(old.allocate(kTwoGiB - 1, "pool"));
    const auto refused = old.allocate(kTwoGiB, "pool");
    REQUIRE_FALSE(refused);
    CHECK(refused.fault().where == "pool");
    CHECK(refused.fault().found == "2147483648 bytes, and the library has no rpcmem_alloc2");
    const RpcMemory both({alloc, alloc2, give_back, to_fd});
    CHECK(both.allocate(256, "pool"));
    const RpcMemory only({nullptr, alloc2, give_back, to_fd});
    CHECK(only.allocate(3 * kTwoGiB, "pool"));
    CHECK(script.calls ==
          std::vector<std::string>{"alloc 25 1 2147483647", "alloc2 25 1 256", "alloc2 25 1 6442450944"});
}

TEST_CASE("a block is asked for with its padding, named once, and freed at the address it came with") {
    script = {{}, block, 7};
    std::fill(std::begin(block), std::end(block), std::byte{1});
    const RpcMemory memory({alloc, nullptr, give_back, to_fd});
    const std::string address = std::to_string(reinterpret_cast<std::uintptr_t>(block));
    {
        const auto buffer = AlignedBuffer::allocate(129, "test", &memory);
        REQUIRE(buffer);
        CHECK(buffer->size() == 129);
        CHECK(buffer->padded_size() == 256);
        CHECK(buffer->fd() == 7);
        CHECK(block[255] == std::byte{0});
        CHECK(block[256] == std::byte{1});
    }
    CHECK(script.calls == std::vector<std::string>{"alloc 25 1 256", "to_fd " + address, "free " + address});
}

TEST_CASE("a block without a file descriptor, or out of line, is freed and refused") {
    const RpcMemory memory({alloc, nullptr, give_back, to_fd});
    script = {{}, block, -1};
    auto buffer = AlignedBuffer::allocate(1, "pool", &memory);
    REQUIRE_FALSE(buffer);
    CHECK(buffer.fault().found == "rpcmem_to_fd gives -1");
    CHECK(script.calls.back() == "free " + std::to_string(reinterpret_cast<std::uintptr_t>(block)));
    script = {{}, block + 64, 7};
    buffer = AlignedBuffer::allocate(1, "pool", &memory);
    REQUIRE_FALSE(buffer);
    CHECK(buffer.fault().found == "64 bytes behind a multiple of 128");
    CHECK(script.calls.back() == "free " + std::to_string(reinterpret_cast<std::uintptr_t>(block + 64)));
    script = {{}, nullptr, 7};
    CHECK_FALSE(AlignedBuffer::allocate(1, "pool", &memory));
    CHECK(script.calls.size() == 1); // nothing to name or free
}

TEST_CASE("the tag of an address stays: in what is freed, and out of offsets") {
    // Never read or written: no x86-64 knows tags. The top bit is set, as a sign would be.
    constexpr std::uintptr_t kTagged = 0xB400'7000'0000'0000;
    script = {{}, reinterpret_cast<void*>(kTagged), 7};
    const RpcMemory memory({nullptr, alloc2, give_back, to_fd});
    const auto allocated = memory.allocate(4096, "pool");
    REQUIRE(allocated);
    CHECK(reinterpret_cast<std::uintptr_t>(*allocated) == kTagged);
    CHECK(kTagged % kTensorAlignment == 0);
    memory.free(*allocated);
    CHECK(memory.to_fd(*allocated) == 7);
    CHECK(script.calls[1] == "free " + std::to_string(kTagged));
    CHECK(script.calls[2] == "to_fd " + std::to_string(kTagged));
}

TEST_CASE("a part of a block is registered once for a context, dtype and shape") {
    script = {{}, block, 7};
    const RpcMemory memory({nullptr, alloc2, give_back, to_fd});
    const auto buffer = AlignedBuffer::allocate(512, "pool", &memory);
    REQUIRE(buffer);
    qnn::abi::CoreTable table{};
    table.mem_register = register_memory;
    table.mem_deregister = deregister_memory;
    qnn::TensorInfo tensor;
    tensor.data_type = qnn::abi::kUFixed8;
    tensor.dimensions = {1, 128};
    int contexts[2] = {};
    script.calls.clear();
    {
        qnn::MemoryRegistrations registrations(table);
        const auto add = [&](int* context, std::size_t offset) {
            auto handle = registrations.add(context, "ar1", tensor, {&*buffer, buffer->data() + offset});
            return handle ? *handle : nullptr;
        };
        const qnn::abi::Handle first = add(&contexts[0], 128);
        CHECK(add(&contexts[0], 128) == first);
        CHECK(add(&contexts[0], 256) != first);
        CHECK(add(&contexts[1], 128) != first);
        tensor.dimensions = {128, 1};
        CHECK(add(&contexts[0], 128) != first);
        CHECK(registrations.size() == 4);
    }
    REQUIRE(script.calls.size() == 8);
    CHECK(script.calls[0] == "register 1 of 512 at 128 fd 7");
    CHECK(script.calls[1] == "register 1 of 512 at 256 fd 7");
    CHECK(std::count_if(script.calls.begin(), script.calls.end(),
                        [](const std::string& call) { return call.rfind("deregister", 0) == 0; }) == 4);
}
