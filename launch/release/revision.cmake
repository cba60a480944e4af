# cmake -DSOURCE=DIR -DOUT=FILE -P: git's description of the source as a macro, for `dtrain info`; empty without git. The file
# changes only when the description does. A tarball in somebody else's repository has none: .git must be the source's.
set(revision "")
if(EXISTS ${SOURCE}/.git)
  execute_process(COMMAND git -C ${SOURCE} describe --tags --always --dirty --match "v*"
    OUTPUT_VARIABLE revision OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
file(CONFIGURE OUTPUT ${OUT} CONTENT "#define DTRAIN_REVISION \"${revision}\"\n" @ONLY)
