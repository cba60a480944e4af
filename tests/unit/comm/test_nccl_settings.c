// test_nccl_settings.c: what of NCCL's environment is read and set before it is loaded.
#include "comm/comm_nccl.h"
#include "testing.h"

#include <stdlib.h>

TEST(sums_in_switches) {
    static const struct {
        const char *algo, *enable;
        bool repeats;
    } CASES[] = {
        {NULL, NULL, false},
        {NULL, "1", false},
        {NULL, "0", true},
        {"", NULL, false},
        {DT_NCCL_REPEATING, NULL, true},
        {"^nvlstree,nvls", NULL, true},
        {"^NVLS", NULL, false}, // leaves NVLSTree
        {"^NVLSX,NVLSTree", NULL, false},
        {"Tree", NULL, true},
        {"Ring,Tree", NULL, true},
        {"Ring,NVLS", NULL, false},
        {"Ring,NVLS", "0", true},
        {"NVLSTree", NULL, false},
        {"allreduce:tree;broadcast:ring", NULL, true},
        {"allreduce:tree;allgather:^nvls", NULL, false},
        {"allreduce:^NVLS,NVLSTree,;", NULL, true},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        unsetenv("NCCL_ALGO");
        unsetenv("NCCL_NVLS_ENABLE");
        if (CASES[i].algo) setenv("NCCL_ALGO", CASES[i].algo, 1);
        if (CASES[i].enable) setenv("NCCL_NVLS_ENABLE", CASES[i].enable, 1);
        if (dt_nccl_repeats() != CASES[i].repeats) fail_msg("case %zu: %s", i, CASES[i].algo);
    }
}

// The loopback is the one interface that every machine has.
TEST(interfaces_of_a_network) {
    char out[256];
    assert_true(dt_nccl_interfaces("lo", out, sizeof out));
    assert_string_equal(out, "=lo");
    assert_true(dt_nccl_interfaces("nosuch0,127.0.0.0/8", out, sizeof out));
    assert_string_equal(out, "=lo");
    assert_false(dt_nccl_interfaces("", out, sizeof out));
    assert_false(dt_nccl_interfaces("l,loo,240.0.0.0/4,127.0.0.0/0,127.0.0.0/99,127.0.0/8,/8", out, sizeof out));
    assert_false(dt_nccl_interfaces("lo,lo,lo", out, 4)); // no room
}

TEST_MAIN(NULL, NULL)
