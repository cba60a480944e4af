# Copyright 2026 The dtrain authors
#
# SPDX-License-Identifier: Apache-2.0

# What dtrain decodes MP3 with. Spack's builtin repository has no package of it (July 2026).

from spack_repo.builtin.build_systems.autotools import AutotoolsPackage

from spack.package import *


class Mpg123(AutotoolsPackage):
    """Decodes MPEG audio of layers 1 to 3."""

    homepage = "https://www.mpg123.de"
    url = "https://www.mpg123.de/download/mpg123-1.33.7.tar.bz2"

    license("LGPL-2.1-only")

    version("1.33.7", sha256="31d0e35a4ca567ec9b5ebda6c3062bb4435d6d3eacd6ef0d95cadd7854dc03ee")

    depends_on("c", type="build")
