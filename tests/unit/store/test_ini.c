// test_ini.c: AWS configuration files, as its command line and people write them.
#include "folder.h"
#include "store/ini.h"
#include "testing.h"

static void ini_is(const char *path, const char *section, const char *name, const char *value) {
    char *got = dt_ini_get(path, section, name);
    if (value)
        assert_string_equal(got, value);
    else
        assert_null(got);
    free(got);
}

TEST_WITH(test_ini, folder_make, folder_remove) {
    // by `aws configure`, `aws configure --profile 'a lab'` and `aws configure set s3.max_concurrent_requests 20`; some
    // lines by hand
    static const char config[] = "[default]\nregion = eu-central-1\noutput = json\n"
                                 "s3 =\n    max_concurrent_requests = 20\n    region = nested\n"
                                 "[profile 'a lab']\nregion = us-east-2\n"
                                 "; of a colleague\n[ profile\t\"x\"  ]  \n"
                                 "  # region = no\n  Region: us-west-1\r\n  empty =\n  word\n"
                                 "  endpoint_url=http://h:9000/?a=b #c \t\n";
    const char *path = in_folder("config");
    must(dt_io_write_file(path, config, sizeof config - 1));
    ini_is(path, "default", "region", "eu-central-1");
    ini_is(path, "default", "output", "json");
    ini_is(path, "default", "max_concurrent_requests", NULL);
    ini_is(path, "profile a lab", "region", "us-east-2");
    ini_is(path, "profile a lab", "output", NULL);
    ini_is(path, "profile x", "region", "us-west-1");
    ini_is(path, "profile x", "empty", NULL);
    ini_is(path, "profile x", "word", NULL);
    ini_is(path, "profile x", "endpoint_url", "http://h:9000/?a=b #c");
    ini_is(path, "x", "region", NULL);
    ini_is(in_folder("missing"), "default", "region", NULL);
    // longer than any buffer
    char *token = dt_xcalloc(1, 9001);
    memset(token, 'x', 9000);
    char *text = dt_xprintf("[%s]\naws_session_token = %s", token, token);
    must(dt_io_write_file(path, text, strlen(text)));
    ini_is(path, token, "aws_session_token", token);
    free(text);
    free(token);
}

TEST_MAIN(NULL, NULL)
