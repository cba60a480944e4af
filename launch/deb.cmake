# CPack runs this on the tree that becomes the .deb: what Debian's policy wants of it. Modules lie in a folder of their own,
# so that neither the linker's cache nor a RUNPATH has to know them, and templates are no scripts yet.
set(usr ${CPACK_TEMPORARY_DIRECTORY}/usr)
set(doc ${usr}/share/doc/dtrain)
file(REMOVE ${usr}/lib/dtrain/dtrain_cuda.so) # NVIDIA's libraries are no packages of Debian's: cmake --install has the module
file(GLOB modules ${usr}/lib/dtrain/*.so)
foreach(module ${modules})
  file(RPATH_REMOVE FILE ${module})
  execute_process(COMMAND strip --strip-unneeded ${module} COMMAND_ERROR_IS_FATAL ANY)
endforeach()
file(WRITE ${usr}/share/lintian/overrides/dtrain "dtrain: maintscript-calls-ldconfig *
dtrain: script-not-executable *share/dtrain/*
dtrain: shell-script-fails-syntax-check *share/dtrain/*
")
file(GLOB pages ${usr}/share/man/man1/*.1)
foreach(page ${pages})
  execute_process(COMMAND gzip -9n ${page} COMMAND_ERROR_IS_FATAL ANY)
endforeach()
file(WRITE ${doc}/copyright "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: dtrain

Files: *
Copyright: 2026 The dtrain authors
License: Apache-2.0
 On Debian systems the text of the license is in /usr/share/common-licenses/Apache-2.0.
")
file(REMOVE ${doc}/LICENSE)
string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC) # SOURCE_DATE_EPOCH, if set
file(WRITE ${doc}/changelog "dtrain (${CPACK_PACKAGE_VERSION}) unstable; urgency=medium

  * Upstream release; CHANGELOG.md has what changed.

 -- ${CPACK_PACKAGE_CONTACT}  ${date}
")
execute_process(COMMAND gzip -9n ${doc}/changelog COMMAND_ERROR_IS_FATAL ANY)
