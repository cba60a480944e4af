# Copyright 2026 The dtrain authors
#
# SPDX-License-Identifier: Apache-2.0

# A package of Spack 1: spack repo create dtrain-repo, put this in its packages/dtrain/, mpg123.py
# in its packages/mpg123/, each as package.py, then spack install dtrain. launch/release/release.sh
# says when a version is to be added.

from spack_repo.builtin.build_systems.cmake import CMakePackage
from spack_repo.builtin.build_systems.cuda import CudaPackage

from spack.package import *


class Dtrain(CMakePackage, CudaPackage):
    """Trains vision, audio and multi-modal networks across a cluster from one
    YAML file, with one MPI rank per GPU, and resumes with the same bits."""

    homepage = "https://dtrain.example"
    url = "https://dtrain.example/releases/dtrain-1.0.0.tar.gz"
    git = "https://dtrain.example/dtrain.git"

    license("Apache-2.0")

    version("main", branch="main")

    variant("mpi", default=True, description="Train on several ranks")

    depends_on("c", type="build")
    depends_on("cmake@3.22:", type="build")
    depends_on("ninja", type="build")
    depends_on("pkgconfig", type="build")
    generator("ninja")

    depends_on("onednn@2.6:")
    depends_on("onednn@3:", when="target=aarch64:")
    depends_on("libyaml")
    depends_on("jansson")
    depends_on("xxhash")
    depends_on("libjpeg-turbo")
    depends_on("libspng")
    depends_on("libwebp")
    depends_on("libtiff@4.5:")
    depends_on("libsndfile+external-libs")
    depends_on("mpg123")
    depends_on("sqlite")
    depends_on("lmdb")
    depends_on("zlib-api")
    depends_on("zstd")
    depends_on("snappy")
    depends_on("minizip")
    depends_on("protobuf-c")
    depends_on("curl")
    depends_on("mpi", when="+mpi")
    depends_on("cudnn@9:", when="+cuda")
    depends_on("nccl@2.28:", when="+cuda")

    def cmake_args(self):
        args = [
            self.define("DTRAIN_TESTS", False),
            self.define("DTRAIN_CUDA", "ON" if self.spec.satisfies("+cuda") else "OFF"),
            self.define("DTRAIN_MPI", "AUTO" if self.spec.satisfies("+mpi") else "OFF"),
        ]
        if self.spec.satisfies("+mpi"):
            args.append(self.define("MPI_C_COMPILER", self.spec["mpi"].mpicc))
        if self.spec.satisfies("+cuda"):
            archs = self.spec.variants["cuda_arch"].value
            if archs != ("none",):
                args.append(self.define("DTRAIN_CUDA_ARCHITECTURES", ";".join(archs)))
        return args
