# cuda.cmake: finds nvcc, cuDNN, cuBLASLt and NCCL (toolkit, Debian or NVIDIA packages, or the nvidia-* Python
# wheels by DTRAIN_CUDA_PATHS) and builds dtrain_cuda.so. With AUTO, what is missing is said and no module is
# built; with ON it is an error.
function(dtrain_cuda_missing text)
  if(DTRAIN_CUDA STREQUAL "ON")
    message(FATAL_ERROR "DTRAIN_CUDA=ON: ${text}; set CUDACXX or DTRAIN_CUDA_PATHS")
  endif()
  message(STATUS "no dtrain_cuda.so: ${text}")
endfunction()

# an nvcc that is not in PATH
if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  find_program(DTRAIN_NVCC nvcc PATHS /usr/local/cuda/bin ${DTRAIN_CUDA_PATHS} PATH_SUFFIXES bin cu13/bin cuda_nvcc/bin)
  if(DTRAIN_NVCC)
    set(CMAKE_CUDA_COMPILER ${DTRAIN_NVCC})
  endif()
endif()
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 80) # what the compiler is tried with; the module has its own list
endif()
include(CheckLanguage)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  dtrain_cuda_missing("nvcc is not found")
  return()
endif()
enable_language(CUDA)
get_filename_component(cuda_root ${CMAKE_CUDA_COMPILER} REALPATH)
get_filename_component(cuda_root ${cuda_root}/../.. ABSOLUTE)

set(cuda_places ${cuda_root} ${cuda_root}/targets/x86_64-linux /usr/local/cuda)
set(cuda_include_folders include cu13/include cu12/include cudnn/include nccl/include cublas/include cuda_runtime/include)
set(cuda_library_folders lib64 lib lib/x86_64-linux-gnu cu13/lib cu12/lib cudnn/lib nccl/lib cublas/lib cuda_runtime/lib)
foreach(header cuda_runtime_api cudnn cublasLt nccl)
  find_path(DTRAIN_${header}_INCLUDE ${header}.h HINTS ${DTRAIN_CUDA_PATHS} PATHS ${cuda_places} PATH_SUFFIXES ${cuda_include_folders})
endforeach()
find_library(DTRAIN_CUDNN_LIBRARY NAMES cudnn libcudnn.so.9 NAMES_PER_DIR HINTS ${DTRAIN_CUDA_PATHS} PATHS ${cuda_places} PATH_SUFFIXES ${cuda_library_folders})
find_library(DTRAIN_CUBLASLT_LIBRARY NAMES cublasLt libcublasLt.so.13 libcublasLt.so.12 NAMES_PER_DIR HINTS ${DTRAIN_CUDA_PATHS} PATHS ${cuda_places}
             PATH_SUFFIXES ${cuda_library_folders})
find_library(DTRAIN_NCCL_LIBRARY NAMES nccl libnccl.so.2 NAMES_PER_DIR HINTS ${DTRAIN_CUDA_PATHS} PATHS ${cuda_places} PATH_SUFFIXES ${cuda_library_folders})
foreach(need cuda_runtime_api_INCLUDE cudnn_INCLUDE cublasLt_INCLUDE nccl_INCLUDE CUDNN_LIBRARY CUBLASLT_LIBRARY
        NCCL_LIBRARY)
  if(NOT DTRAIN_${need})
    dtrain_cuda_missing("${need} is not found")
    return()
  endif()
endforeach()

set(cuda_architectures ${DTRAIN_CUDA_ARCHITECTURES})
if(NOT cuda_architectures)
  if(CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 12.8)
    set(cuda_architectures 80-real 90-real 100-real 120)
  else()
    set(cuda_architectures 80-real 90)
  endif()
endif()

file(GLOB cuda_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/runtime/backend/cuda/kernels.cu
     ${CMAKE_SOURCE_DIR}/runtime/backend/cuda/cuda_real*.c ${CMAKE_SOURCE_DIR}/runtime/backend/cuda/cuda_dnn*.c
     ${CMAKE_SOURCE_DIR}/runtime/backend/cuda/cuda_gemm*.c ${CMAKE_SOURCE_DIR}/runtime/backend/cuda/*_real.c)
add_library(dtrain_cuda MODULE ${cuda_sources})
# of base and graph it uses what the program exports, never a copy: errors and the log are one
target_sources(dtrain_cuda PRIVATE $<TARGET_OBJECTS:dt_cuda_host>)
set_target_properties(dtrain_cuda PROPERTIES PREFIX "" CUDA_ARCHITECTURES "${cuda_architectures}"
                      CUDA_STANDARD 17 CUDA_RUNTIME_LIBRARY Static C_VISIBILITY_PRESET hidden)
target_include_directories(dtrain_cuda SYSTEM PRIVATE ${DTRAIN_cuda_runtime_api_INCLUDE} ${DTRAIN_cudnn_INCLUDE}
                           ${DTRAIN_cublasLt_INCLUDE} ${DTRAIN_nccl_INCLUDE})
target_compile_options(dtrain_cuda PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:--threads=2;-Xcompiler=-Wall>"
                       "$<$<COMPILE_LANGUAGE:C>:-O2>")
target_link_libraries(dtrain_cuda PRIVATE ${DTRAIN_CUDNN_LIBRARY} ${DTRAIN_CUBLASLT_LIBRARY} ${DTRAIN_NCCL_LIBRARY}
                      ${CMAKE_DL_LIBS} Threads::Threads)
target_link_options(dtrain_cuda PRIVATE "LINKER:-Bsymbolic" -static-libstdc++ -static-libgcc)
set(cuda_rpath "$ORIGIN/lib;$ORIGIN;/usr/local/cuda/lib64;/usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}")
foreach(library ${DTRAIN_CUDNN_LIBRARY} ${DTRAIN_CUBLASLT_LIBRARY} ${DTRAIN_NCCL_LIBRARY})
  get_filename_component(folder ${library} DIRECTORY)
  list(APPEND cuda_rpath ${folder})
endforeach()
list(REMOVE_DUPLICATES cuda_rpath)
set_target_properties(dtrain_cuda PROPERTIES BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "${cuda_rpath}")
message(STATUS "dtrain_cuda.so: nvcc ${CMAKE_CUDA_COMPILER_VERSION}, sm ${cuda_architectures}, ${DTRAIN_CUDNN_LIBRARY}, ${DTRAIN_NCCL_LIBRARY}")
