#include "sha256.h"

#include <catch2/catch.hpp>
#include <string_view>

using namespace snapgate;

namespace {

Span<const std::byte> bytes_of(std::string_view text) {
    return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

} // namespace

TEST_CASE("sha256 agrees with the examples of FIPS 180-4") {
    CHECK(sha256_hex(bytes_of("")) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    CHECK(sha256_hex(bytes_of("abc")) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    CHECK(sha256_hex(bytes_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")) ==
          "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    CHECK(sha256_hex(bytes_of("abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqr"
                              "lmnopqrsmnopqrstnopqrstu")) ==
          "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1");
    CHECK(sha256_hex(bytes_of(std::string(1000000, 'a'))) ==
          "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST_CASE("sha256 does not depend on how the bytes are cut into pieces") {
    const std::string text(300, 'x');
    const std::string whole = sha256_hex(bytes_of(text));
    for (const std::size_t piece : {1U, 55U, 56U, 63U, 64U, 65U, 127U, 128U}) {
        Sha256 hash;
        for (std::size_t i = 0; i < text.size(); i += piece) {
            hash.update(bytes_of(std::string_view(text).substr(i, piece)));
        }
        CHECK(hash.hex_digest() == whole);
    }
}

TEST_CASE("sha256 pads lengths around a block boundary rightly") {
    CHECK(sha256_hex(bytes_of(std::string(55, 'a'))) ==
          "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318");
    CHECK(sha256_hex(bytes_of(std::string(56, 'a'))) ==
          "b35439a4ac6f0948b6d6f9e3c6af0f5f590ce20f1bde7090ef7970686ec6738a");
    CHECK(sha256_hex(bytes_of(std::string(64, 'a'))) ==
          "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb");
}
