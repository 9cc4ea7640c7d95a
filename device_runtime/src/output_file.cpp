#include "output_file.h"

#include "record_writer.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>

namespace snapgate {
namespace {

constexpr const char* kFileName = "outputs.bin";

Fault io_fault(const std::string& path, const char* what) {
    return Fault{
        ExitCode::kIoFailed,
        path,
        what,
        std::strerror(errno),
        "a writable folder with space left",
        "free space on the device, or ask for fewer outputs",
    };
}

// Steps of the graph that a prompt can take at most; a token carried over from the round before is one more.
std::uint64_t max_steps(const Prompt& prompt, const StepGraph& graph) {
    const std::uint64_t n_prompt = prompt.tokens.size() + 1;
    if (graph.n_tokens() > 1) { // all but the last step are full
        return n_prompt / graph.n_tokens() + 1;
    }
    return n_prompt + prompt.n_gen;
}

} // namespace

Result<OutputFile> OutputFile::create(const std::string& folder, const std::vector<Prompt>& prompts,
                                      const std::vector<StepGraph>& steps) {
    OutputFile file;
    for (const Prompt& prompt : prompts) {
        for (const std::string& name : prompt.outputs) {
            bool found = false;
            for (auto step = steps.rbegin(); step != steps.rend(); ++step) { // widest first: as a prompt runs
                const StepGraph* graph = &*step;
                const std::optional<GraphOutput> output = graph->output(name);
                if (!output) {
                    continue;
                }
                found = true;
                const auto same = [&](const Series& s) { return s.graph == graph && s.name == name; };
                auto known = std::find_if(file.series_.begin(), file.series_.end(), same);
                if (known == file.series_.end()) {
                    file.series_.push_back({graph, name, *output, 0, false, {}, {}});
                    known = file.series_.end() - 1;
                }
                known->max_steps = std::max(known->max_steps, max_steps(prompt, *graph));
            }
            if (!found) {
                return Fault{
                    ExitCode::kTensorMismatch,
                    "prompt '" + prompt.prompt_id + "'",
                    "no graph has the output that the prompt asks for",
                    name,
                    "the name of a graph output",
                    "take a name from the artifact's manifest",
                };
            }
        }
    }
    file.path_ = folder + "/" + kFileName;
    file.file_ = FileDescriptor(::open(file.path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (!file.file_) {
        return io_fault(file.path_, "the file of outputs cannot be created");
    }
    for (Series& series : file.series_) {
        auto copies = AlignedBuffer::allocate(series.max_steps * series.output.bytes.size(), "collected outputs");
        if (!copies) {
            return std::move(copies).fault();
        }
        series.copies = *std::move(copies);
        series.positions.reserve(series.max_steps);
    }
    return file;
}

void OutputFile::begin(const Prompt& prompt) noexcept {
    for (Series& series : series_) {
        series.positions.clear();
        series.wanted = std::find(prompt.outputs.begin(), prompt.outputs.end(), series.name) != prompt.outputs.end();
    }
}

void OutputFile::add(const StepGraph& graph, std::uint32_t n_past) noexcept {
    for (Series& series : series_) {
        if (series.wanted && series.graph == &graph && series.positions.size() < series.max_steps) {
            const Span<const std::byte> bytes = series.output.bytes;
            std::memcpy(series.copies.data() + series.positions.size() * bytes.size(), bytes.data(), bytes.size());
            series.positions.push_back(n_past);
        }
    }
}

Result<std::vector<OutputRecord>> OutputFile::write() {
    std::vector<OutputRecord> records;
    for (const Series& series : series_) {
        if (!series.wanted) {
            continue;
        }
        const std::uint64_t n_bytes = series.positions.size() * series.output.bytes.size();
        if (!write_fully(file_.get(), series.copies.data(), n_bytes)) {
            return io_fault(path_, "outputs cannot be written");
        }
        const TensorSpec& spec = *series.output.spec;
        records.push_back({series.name, series.graph->name(), name_of(spec.dtype), spec.shape, spec.scale,
                           spec.zero_point, kFileName, file_bytes_, series.positions});
        file_bytes_ += n_bytes;
    }
    return records;
}

} // namespace snapgate
