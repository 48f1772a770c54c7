# SPDX-License-Identifier: MIT
# find_package(qsa) gives qsa::static, qsa::shared, and qsa::qsa: the shared one, or the static one if qsa_USE_STATIC_LIBS is set.
include(CMakeFindDependencyMacro)
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_dependency(Threads)
include("${CMAKE_CURRENT_LIST_DIR}/qsaTargets.cmake")
if(NOT TARGET qsa::qsa)
  add_library(qsa::qsa INTERFACE IMPORTED)
  if(qsa_USE_STATIC_LIBS)
    target_link_libraries(qsa::qsa INTERFACE qsa::static)
  else()
    target_link_libraries(qsa::qsa INTERFACE qsa::shared)
  endif()
endif()
