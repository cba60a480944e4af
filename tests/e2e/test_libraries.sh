#!/usr/bin/env bash
# What CMake finds and misses: libraries in a folder of their own (CMAKE_PREFIX_PATH, a conda environment), the packages that
# have what is missing, and oneDNN 2 on arm64. Nothing is built.
. "${SOURCE:?}/tests/expect.sh"

configure() { cmake -S "$SOURCE" -B "$dir/build" -G Ninja -DDTRAIN_CUDA=OFF -DDTRAIN_MPI=OFF "$@"; }
fresh() { rm -rf "$dir/build"; }
finds() { grep -qF -- "$1" build/CMakeCache.txt || fail "not found: $1"; }

# a system without libyaml, with an old libtiff, and without the headers that have no module of pkg-config
mkdir modules
IFS=: read -ra folders < <(pkg-config --variable pc_path pkg-config)
for folder in "${folders[@]}"; do
    for module in "$folder"/*.pc; do
        [ ! -e "$module" ] || ln -sf "$module" modules/
    done
done
rm modules/yaml-0.1.pc
mv modules/libtiff-4.pc .
sed 's/^Version:.*/Version: 4.4.0/' libtiff-4.pc >modules/libtiff-4.pc
export PKG_CONFIG_LIBDIR=$dir/modules
expect 1 'yaml-0.1 (apt: libyaml-dev, dnf: libyaml-devel, conda-forge: yaml)' configure -DCMAKE_IGNORE_PATH=/usr/include
for line in 'libtiff-4>=4.5 (apt: libtiff-dev, dnf: none, conda-forge: libtiff)' 'snappy (apt: libsnappy-dev' 'lmdb (apt: liblmdb-dev' \
    'spng (apt: libspng-dev, dnf: none, conda-forge: none)' \
    'dnnl (apt: libdnnl-dev, dnf: onednn-devel, conda-forge: onednn-cpu-omp)' 'launch/packages.sh installs' -DCMAKE_PREFIX_PATH; do
    grep -qF -- "$line" out.txt || fail "the error lacks '$line': $(cat out.txt)"
done
[ "$(grep -c '(apt: ' out.txt)" = 6 ] || fail "it names others, too: $(cat out.txt)"
"$SOURCE/launch/packages.sh" --list >lists.txt 2>lacks.txt
for line in 'dnf does not have spng, libtiff-4: build from source' 'conda-forge does not have spng: build from source'; do
    grep -qF "packages: $line" lacks.txt || fail "packages.sh --list does not say '$line': $(cat lacks.txt)"
done
[ "$(wc -l <lacks.txt)" = 2 ] || fail "packages.sh --list says: $(cat lacks.txt)"
for words in --bogus '--tests --bogus' '--bogus --list'; do # where it finds no program to install with
    expect 2 'usage: launch/packages.sh' env PATH=/none /bin/bash "$SOURCE/launch/packages.sh" $words
done
expect 2 "no 'apt dnf'" "$SOURCE/launch/packages.sh" --list apt dnf
for manager in apt dnf conda-forge; do
    grep -qxF "$manager: $("$SOURCE/launch/packages.sh" --list $manager | paste -sd' ')" lists.txt || fail "packages.sh --list $manager"
done

# both in a folder
mv -f libtiff-4.pc modules/
include=$(sed -n 's/^SNAPPY_INCLUDE:PATH=//p' "$BUILD/CMakeCache.txt") library=$(sed -n 's/^SNAPPY_LIBRARY:FILEPATH=//p' "$BUILD/CMakeCache.txt")
mkdir -p prefix/include prefix/lib/pkgconfig
cp -L "$include"/snappy-c.h prefix/include/
cp -L "$library" prefix/lib/libsnappy.so
cp -L "$(sed -n 's/^pkgcfg_lib_YAML_yaml:FILEPATH=//p' "$BUILD/CMakeCache.txt")" prefix/lib/libyaml.so
printf 'prefix=%s\nName: yaml\nDescription: yaml\nVersion: 0.2.5\nCflags: -I${prefix}/include\nLibs: -L${prefix}/lib -lyaml\n' "$dir/prefix" >prefix/lib/pkgconfig/yaml-0.1.pc
for way in prefix conda; do
    fresh
    if [ $way = prefix ]; then
        expect 0 'Generating done' configure -DCMAKE_PREFIX_PATH="$dir/prefix"
    else
        CONDA_PREFIX=$dir/prefix expect 0 'Generating done' configure
    fi
    finds "pkgcfg_lib_YAML_yaml:FILEPATH=$dir/prefix/lib/libyaml.so"
    finds "SNAPPY_LIBRARY:FILEPATH=$dir/prefix/lib/libsnappy.so"
    finds "SNAPPY_INCLUDE:PATH=$dir/prefix/include"
    ninja -C build -t commands dtrain | grep -- '-o dtrain ' | grep -- "-rpath,[^ ]*$dir/prefix/lib" >/dev/null || fail "$way: the program will not find its libraries"
done

# arm64, whose kernels are those of oneDNN 3
mkdir -p dnnl/include/oneapi/dnnl dnnl/lib
touch dnnl/include/oneapi/dnnl/dnnl.h dnnl/lib/libdnnl.so
arm=(-DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 -DCMAKE_PREFIX_PATH="$dir/dnnl;$dir/prefix")
echo '#define DNNL_VERSION_MAJOR 2' >dnnl/include/oneapi/dnnl/dnnl_version.h
fresh
expect 1 'dtrain needs oneDNN 3 there' configure "${arm[@]}"
grep -qF "oneDNN 2 ($dir/dnnl/lib/libdnnl.so)" out.txt || fail "it does not name what it found: $(cat out.txt)"
echo '#define DNNL_VERSION_MAJOR 3' >dnnl/include/oneapi/dnnl/dnnl_version.h
fresh
expect 0 'Generating done' configure "${arm[@]}"
echo passed
