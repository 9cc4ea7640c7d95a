// Whether the QNN libraries that this process has loaded are of one build.
#pragma once

#include "result.h"
#include "span.h"

#include <cstddef>
#include <string>

namespace snapgate {

// What in a library's file speaks against its being of build `build_id` ("v2.50.40.260831140417"): another build id,
// or, in a library that names neither id nor release, a lone build time of another build ("\0" "260831140417" "\0").
// Empty: nothing does.
std::string foreign_build(Span<const std::byte> content, const std::string& build_id);

// LIBRARY_LOAD names the first loaded file libQnn*.so of another build than `build_id`, which is the backend's. Files
// are found among the objects that the dynamic linker has loaded, stubs included; what runs on the DSP is not among
// them.
Status verify_library_builds(const std::string& build_id);

} // namespace snapgate
