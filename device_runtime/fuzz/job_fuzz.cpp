// Any bytes as a job file: refused with a fault that names a path, or a job within the limits the rest relies on.
#include "job.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

namespace {

void require(bool holds) {
    if (!holds) {
        std::abort();
    }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const auto job = snapgate::parse_job(std::string(reinterpret_cast<const char*>(data), size));
    if (!job) {
        const snapgate::Fault& fault = job.fault();
        require(fault.code == snapgate::ExitCode::kJobInvalid || fault.code == snapgate::ExitCode::kPromptTooLong);
        require(fault.where.rfind("job", 0) == 0 && !fault.what.empty() && !fault.expected.empty());
        return 0;
    }
    const snapgate::JobModel& model = job->model;
    require(model.head_dim % 2 == 0 && model.context_length >= 2 && model.vocab_size >= 1);
    bool decodes = false;
    for (const snapgate::JobContext& context : job->contexts) {
        for (const snapgate::GraphSpec& graph : context.graphs) {
            decodes = decodes || graph.n_tokens == 1;
            require(graph.n_tokens < model.context_length);
            for (const auto* tensors : {&graph.inputs, &graph.outputs}) {
                for (const snapgate::TensorSpec& tensor : *tensors) {
                    require(!tensor.shape.empty() && tensor.scale.has_value() == tensor.zero_point.has_value());
                    static_cast<void>(tensor.n_bytes());
                }
            }
        }
    }
    require(decodes && !job->prompts.empty());
    for (const snapgate::Prompt& prompt : job->prompts) {
        require(!prompt.tokens.empty() && prompt.tokens.size() <= model.context_length);
        for (const std::int32_t token : prompt.tokens) {
            require(token >= 0 && static_cast<std::uint32_t>(token) < model.vocab_size);
        }
    }
    return 0;
}
