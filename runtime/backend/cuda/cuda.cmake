# cuda.cmake: finds nvcc, cuDNN, cuBLASLt and NCCL (toolkit, Debian or NVIDIA packages, or the nvidia-* Python
# wheels by DTRAIN_CUDA_PATHS) and builds dtrain_cuda.so. If something is missing, AUTO prints what and builds no
# module; ON fails.
function(dtrain_cuda_missing text)
  if(DTRAIN_CUDA STREQUAL "ON")
    message(FATAL_ERROR "DTRAIN_CUDA=ON: ${text}; set CUDACXX or DTRAIN_CUDA_PATHS")
  endif()
  message(STATUS "no dtrain_cuda.so: ${text}")
endfunction()

# DTRAIN_CUDA_PATHS comes before PATH: it is the explicit choice
if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  find_program(DTRAIN_NVCC nvcc HINTS ${DTRAIN_CUDA_PATHS} PATHS /usr/local/cuda/bin
               PATH_SUFFIXES bin cu13/bin cu12/bin cuda_nvcc/bin)
  if(DTRAIN_NVCC)
    set(CMAKE_CUDA_COMPILER ${DTRAIN_NVCC})
  endif()
endif()
set(cuda_nvcc ${CMAKE_CUDA_COMPILER} $ENV{CUDACXX})
if(NOT cuda_nvcc)
  dtrain_cuda_missing("nvcc is not found")
  return()
endif()
list(GET cuda_nvcc 0 cuda_nvcc)
execute_process(COMMAND ${cuda_nvcc} --version OUTPUT_VARIABLE cuda_said ERROR_QUIET)
if(NOT cuda_said MATCHES "release ([0-9]+)\\.([0-9]+)")
  dtrain_cuda_missing("${cuda_nvcc} does not run")
  return()
endif()
set(cuda_major ${CMAKE_MATCH_1})
if(cuda_major LESS 12)
  dtrain_cuda_missing("${cuda_nvcc} is of CUDA ${CMAKE_MATCH_1}.${CMAKE_MATCH_2}, and 12 or newer is needed")
  return()
endif()
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 80) # for testing the compiler; the module has its own list
endif()
include(CheckLanguage)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  dtrain_cuda_missing("${cuda_nvcc} does not compile (CMakeFiles/CMakeError.log or CMakeConfigureLog.yaml says why; CUDAHOSTCXX names another C++ compiler for it)")
  return()
endif()
enable_language(CUDA)
get_filename_component(cuda_root ${CMAKE_CUDA_COMPILER} REALPATH)
get_filename_component(cuda_root ${cuda_root}/../.. ABSOLUTE)

# The runtime is nvcc's own. The libraries may come from another release of the same CUDA version.
set(cuda_target x86_64-linux)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  set(cuda_target sbsa-linux)
endif()
set(cuda_places ${cuda_root} ${cuda_root}/targets/${cuda_target} /usr/local/cuda)
set(cuda_include_folders include cu${cuda_major}/include cudnn/include nccl/include cublas/include cuda_runtime/include)
set(cuda_library_folders lib64 lib lib/${CMAKE_LIBRARY_ARCHITECTURE} cu${cuda_major}/lib cudnn/lib nccl/lib cublas/lib)
find_path(DTRAIN_cuda_runtime_api_INCLUDE cuda_runtime_api.h HINTS ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES} ${DTRAIN_CUDA_PATHS}
          PATHS ${cuda_places} PATH_SUFFIXES ${cuda_include_folders})
foreach(header cudnn cublasLt nccl)
  find_path(DTRAIN_${header}_INCLUDE ${header}.h HINTS ${DTRAIN_CUDA_PATHS} PATHS ${cuda_places} PATH_SUFFIXES ${cuda_include_folders})
endforeach()
find_library(DTRAIN_CUDNN_LIBRARY NAMES cudnn libcudnn.so.9 NAMES_PER_DIR HINTS ${DTRAIN_CUDA_PATHS} PATHS ${cuda_places} PATH_SUFFIXES ${cuda_library_folders})
find_library(DTRAIN_CUBLASLT_LIBRARY NAMES cublasLt libcublasLt.so.${cuda_major} NAMES_PER_DIR HINTS ${DTRAIN_CUDA_PATHS} PATHS ${cuda_places}
             PATH_SUFFIXES ${cuda_library_folders})
find_library(DTRAIN_NCCL_LIBRARY NAMES nccl libnccl.so.2 NAMES_PER_DIR HINTS ${DTRAIN_CUDA_PATHS} PATHS ${cuda_places} PATH_SUFFIXES ${cuda_library_folders})
set(cuda_package_cudnn "cuDNN 9 (cudnn.h, libcudnn.so.9)")
set(cuda_package_cublasLt "cuBLASLt (cublasLt.h, libcublasLt.so.${cuda_major})")
set(cuda_package_nccl "NCCL (nccl.h)")
foreach(need cudnn cublasLt nccl)
  string(TOUPPER ${need} upper)
  # NCCL is loaded when ranks need it: its header is enough
  if(NOT DTRAIN_${need}_INCLUDE OR (NOT DTRAIN_${upper}_LIBRARY AND NOT need STREQUAL "nccl"))
    dtrain_cuda_missing("${cuda_package_${need}} is not found")
    return()
  endif()
endforeach()

dt_read_define(cudnn_major ${DTRAIN_cudnn_INCLUDE}/cudnn_version.h CUDNN_MAJOR)
dt_read_define(cublas_major ${DTRAIN_cublasLt_INCLUDE}/cublas_api.h CUBLAS_VER_MAJOR)
if(NOT cudnn_major EQUAL 9)
  dtrain_cuda_missing("${DTRAIN_cudnn_INCLUDE}/cudnn.h is of cuDNN ${cudnn_major}, and 9 is needed")
  return()
endif()
if(NOT cublas_major EQUAL cuda_major)
  dtrain_cuda_missing("${DTRAIN_cublasLt_INCLUDE}/cublasLt.h is of CUDA ${cublas_major}, nvcc of CUDA ${cuda_major}")
  return()
endif()

set(cuda_architectures ${DTRAIN_CUDA_ARCHITECTURES})
if(NOT cuda_architectures)
  set(cuda_architectures 80-real 90-real 100-real 120)
  if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 12.8)
    set(cuda_architectures 80-real 90)
  endif()
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64") # Jetsons: sm_87 by PTX of 80, sm_110 by PTX of 100
    list(TRANSFORM cuda_architectures REPLACE "^(80|100)-real" "\\1")
  endif()
endif()

file(GLOB cuda_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/runtime/backend/cuda/kernels.cu
     ${CMAKE_SOURCE_DIR}/runtime/backend/cuda/cuda_real*.c ${CMAKE_SOURCE_DIR}/runtime/backend/cuda/cuda_dnn*.c
     ${CMAKE_SOURCE_DIR}/runtime/backend/cuda/cuda_gemm*.c ${CMAKE_SOURCE_DIR}/runtime/backend/cuda/*_real.c)
add_library(dtrain_cuda MODULE ${cuda_sources})
# it uses the program's base and graph, never a copy: there must be one error and one log
target_sources(dtrain_cuda PRIVATE $<TARGET_OBJECTS:dt_cuda_host>)
set_target_properties(dtrain_cuda PROPERTIES PREFIX "" CUDA_ARCHITECTURES "${cuda_architectures}"
                      CUDA_STANDARD 17 CUDA_RUNTIME_LIBRARY Static C_VISIBILITY_PRESET hidden)
string(REPLACE ";" ", " cuda_built_for "${cuda_architectures}") # a message's
set_source_files_properties(${CMAKE_SOURCE_DIR}/runtime/backend/cuda/cuda_real.c PROPERTIES
                            COMPILE_DEFINITIONS "DTRAIN_CUDA_BUILT_FOR=\"${cuda_built_for}\"")
target_include_directories(dtrain_cuda SYSTEM PRIVATE ${DTRAIN_cuda_runtime_api_INCLUDE} ${DTRAIN_cudnn_INCLUDE}
                           ${DTRAIN_cublasLt_INCLUDE} ${DTRAIN_nccl_INCLUDE})
target_compile_options(dtrain_cuda PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:--threads=2;-Xcompiler=-Wall>"
                       "$<$<COMPILE_LANGUAGE:C>:-O2>")
target_link_libraries(dtrain_cuda PRIVATE ${DTRAIN_CUDNN_LIBRARY} ${DTRAIN_CUBLASLT_LIBRARY} ${CMAKE_DL_LIBS} Threads::Threads)
target_link_options(dtrain_cuda PRIVATE "LINKER:-Bsymbolic" -static-libstdc++ -static-libgcc)
# in the build folder the places where the libraries were found come first; a bundle takes the installed form
set(cuda_usual "$ORIGIN/lib;$ORIGIN;/usr/local/cuda/lib64;/usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}")
set(cuda_rpath "")
foreach(library ${DTRAIN_CUDNN_LIBRARY} ${DTRAIN_CUBLASLT_LIBRARY} ${DTRAIN_NCCL_LIBRARY})
  get_filename_component(folder ${library} DIRECTORY)
  if(folder) # else DTRAIN_NCCL_LIBRARY-NOTFOUND
    list(APPEND cuda_rpath ${folder})
  endif()
endforeach()
list(APPEND cuda_rpath ${cuda_usual})
list(REMOVE_DUPLICATES cuda_rpath)
set_target_properties(dtrain_cuda PROPERTIES BUILD_RPATH "${cuda_rpath}" INSTALL_RPATH "${cuda_usual}")
install(TARGETS dtrain_cuda LIBRARY DESTINATION . COMPONENT cuda_module EXCLUDE_FROM_ALL) # launch/bundle.sh
message(STATUS "dtrain_cuda.so: nvcc ${CMAKE_CUDA_COMPILER_VERSION}, sm ${cuda_architectures}, ${DTRAIN_CUDNN_LIBRARY}, ${DTRAIN_NCCL_LIBRARY}")
