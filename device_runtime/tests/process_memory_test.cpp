#include "process_memory.h"

#include <catch2/catch.hpp>

using namespace snapgate;

TEST_CASE("the kernel's kB are 1024 bytes") {
    const auto record =
        parse_process_memory("Name:\trunner\nVmHWM:\t    2048 kB\nVmRSS:\t 1000 kB\nRssAnon:\t1 kB\n", "end");
    CHECK(record.at == "end");
    CHECK(record.vm_hwm_bytes == 2097152U);
    CHECK(record.vm_rss_bytes == 1024000U);
    CHECK(record.rss_anon_bytes == 1024U);
}

TEST_CASE("what the kernel does not say is not measured") {
    const auto record = parse_process_memory("VmHWM:\tmany kB\nVmRSS:\t7 MB\n", "end");
    CHECK_FALSE(record.vm_hwm_bytes);
    CHECK_FALSE(record.vm_rss_bytes);
    CHECK_FALSE(record.vm_swap_bytes);
}

TEST_CASE("this process has a size") {
    const auto record = read_process_memory("end");
    REQUIRE(record.vm_rss_bytes);
    CHECK(*record.vm_rss_bytes > 100000);
    CHECK(*record.vm_hwm_bytes >= *record.vm_rss_bytes);
}
