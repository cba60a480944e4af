// testing.h: cmocka with a list of tests that keeps itself. TEST(name) { ... } defines a test and enters it, so that none
// is forgotten; TEST_WITH's has a set-up and a tear-down of its own. The last line of a program is TEST_MAIN(set_up,
// tear_down), with the group's or NULL: the tests run in the order of their definitions. Where main does more, it calls
// run_all_tests(). The list is static: all tests of a program are in one file and its headers.
#ifndef DT_TESTS_TESTING_H
#define DT_TESTS_TESTING_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/core.h"

// By __COUNTER__, as constructors run in no order of the source; what else counts with it leaves gaps.
__attribute__((unused)) static struct CMUnitTest all_tests[128];

#define TEST_WITH(name, set_up, tear_down)                                                                             \
    static void name(void **state);                                                                                    \
    __attribute__((constructor)) static void enter_##name(void) {                                                      \
        all_tests[__COUNTER__] = (struct CMUnitTest){#name, name, set_up, tear_down, NULL};                            \
    }                                                                                                                  \
    static void name(void **state)
#define TEST(name) TEST_WITH(name, NULL, NULL)

// Number of tests that failed.
static inline int run_all_tests(CMFixtureFunction set_up, CMFixtureFunction tear_down) {
    struct CMUnitTest tests[sizeof all_tests / sizeof *all_tests];
    size_t n = 0;
    for (size_t i = 0; i < sizeof all_tests / sizeof *all_tests; i++)
        if (all_tests[i].name) tests[n++] = all_tests[i];
    return _cmocka_run_group_tests("tests", tests, n, set_up, tear_down);
}

// A call that must succeed, else the test fails with its message; and one that must fail, with these words in the message.
#define must(...)                                                                                                      \
    do {                                                                                                               \
        if ((__VA_ARGS__) != DT_OK) fail_msg("%s: %s", #__VA_ARGS__, dt_error_message());                              \
    } while (0)
#define must_fail(status, words, ...)                                                                                  \
    do {                                                                                                               \
        const dt_status got_ = (__VA_ARGS__);                                                                          \
        if (got_ != (status) || !strstr(dt_error_message(), words))                                                    \
            fail_msg("%s: %d, %s", #__VA_ARGS__, (int)got_, dt_error_message());                                       \
    } while (0)

#define TEST_MAIN(set_up, tear_down)                                                                                   \
    int main(void) {                                                                                                   \
        return run_all_tests(set_up, tear_down);                                                                       \
    }

#endif
