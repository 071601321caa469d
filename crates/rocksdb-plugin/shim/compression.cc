// The compression manager `ziptier`: RocksDB's classes around a codec of `ziptier_rocksdb`.
//
// With a standard format it keeps RocksDB's own compatibility name: files say that they were written by the built-in
// manager, and any RocksDB reads them. The private formats have names of their own: one, and another for dense tokens,
// which may be entropy-coded. Plugins that do not know such codes do not know the second name, and refuse the files. A
// manager is also registered under each name, so that RocksDB can read its files wherever the plugin is loaded.

#include "compression.h"

#include <rocksdb/advanced_compression.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/utilities/options_type.h>

#include <array>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "options.h"
#include "rust.h"

namespace ziptier {
namespace {

using namespace ROCKSDB_NAMESPACE;

constexpr const char* kName = "ziptier";
constexpr const char* kPrivateName = "ZiptierV1";
constexpr const char* kDenseName = "ZiptierV2";
// The level of `format=token` whose files have the second name.
constexpr int kDenseLevel = 2;
constexpr size_t kMessageBytes = 512;

using Message = std::array<char, kMessageBytes>;

struct CloseCodec {
  void operator()(ZtCodec* codec) const { zt_codec_close(codec); }
};
using CodecPtr = std::shared_ptr<ZtCodec>;

struct CloseGeneration {
  void operator()(ZtGeneration* generation) const { zt_generation_close(generation); }
};
using GenerationPtr = std::shared_ptr<ZtGeneration>;

GenerationPtr Own(ZtGeneration* generation) {
  return generation == nullptr ? nullptr : GenerationPtr(generation, CloseGeneration());
}

Slice BytesOf(const GenerationPtr& generation) {
  if (generation == nullptr) {
    return Slice();
  }
  size_t length = 0;
  const char* bytes = zt_generation_bytes(generation.get(), &length);
  return Slice(bytes, length);
}

// Whether a type is one of the private format's.
bool IsPrivate(CompressionType type) { return static_cast<uint8_t>(type) >= 0x80; }

// Unpacks what a manager packs, and hands everything else to RocksDB.
class ZiptierDecompressor : public Decompressor {
 public:
  ZiptierDecompressor(CodecPtr codec, std::shared_ptr<Decompressor> builtin, GenerationPtr generation, Slice dict)
      : codec_(std::move(codec)),
        builtin_(std::move(builtin)),
        generation_(std::move(generation)),
        dict_(dict) {}

  const char* Name() const override { return "ZiptierDecompressor"; }

  const Slice& GetSerializedDict() const override { return dict_; }

  Status MaybeCloneForDict(const Slice& dict, std::unique_ptr<Decompressor>* out) override {
    std::shared_ptr<Decompressor> builtin = builtin_;
    GenerationPtr generation;
    if (zt_generation_is_one(dict.data(), dict.size())) {
      Message error{};
      bool is_damaged = false;
      generation = Own(zt_generation_load(dict.data(), dict.size(), &is_damaged, error.data(), error.size()));
      if (generation == nullptr) {
        return is_damaged ? Status::Corruption(error.data()) : Status::Aborted(error.data());
      }
      zt_codec_adopt(codec_.get(), generation.get());
    } else {
      std::unique_ptr<Decompressor> clone;
      Status status = builtin_->MaybeCloneForDict(dict, &clone);
      if (!status.ok()) {
        return status;
      }
      builtin = std::move(clone);
    }
    *out = std::make_unique<ZiptierDecompressor>(codec_, std::move(builtin), std::move(generation), dict);
    return Status::OK();
  }

  // A generation is shared by files, so each counts only what it has alone.
  size_t ApproximateOwnedMemoryUsage() const override { return sizeof(*this); }

  ManagedWorkingArea ObtainWorkingArea(CompressionType preferred) override {
    return IsPrivate(preferred) ? ManagedWorkingArea{} : builtin_->ObtainWorkingArea(preferred);
  }

  Status ExtractUncompressedSize(Args& args) override {
    if (!IsPrivate(args.compression_type)) {
      return builtin_->ExtractUncompressedSize(args);
    }
    Status status = Decompressor::ExtractUncompressedSize(args);
    // RocksDB makes room for as many bytes as the block says.
    const auto type = static_cast<uint8_t>(args.compression_type);
    if (status.ok() &&
        args.uncompressed_size > zt_raw_bytes_max(type, args.compressed_data.data(), args.compressed_data.size())) {
      return Status::Corruption("a block cannot hold as many bytes as it says");
    }
    return status;
  }

  Status DecompressBlock(const Args& args, char* out) override {
    const auto type = static_cast<uint8_t>(args.compression_type);
    const bool has_own_dict = generation_ == nullptr && !dict_.empty();  // one of RocksDB's
    if (!IsPrivate(args.compression_type) && (has_own_dict || !zt_codec_unpacks_standard(codec_.get(), type))) {
      return builtin_->DecompressBlock(args, out);
    }
    Message error;
    switch (zt_unpack(codec_.get(), generation_.get(), type, args.compressed_data.data(), args.compressed_data.size(),
                      out, args.uncompressed_size, error.data(), error.size())) {
      case 0:
        return Status::OK();
      case 1:
        return Status::Corruption(error.data());
      default:
        // Not Corruption, for which RocksDB may stop all writes and people throw files away.
        return Status::Aborted(error.data());
    }
  }

 private:
  CodecPtr codec_;
  std::shared_ptr<Decompressor> builtin_;
  GenerationPtr generation_;
  Slice dict_;
};

// Packs the blocks of one file.
class ZiptierCompressor : public Compressor {
 public:
  ZiptierCompressor(CodecPtr codec, std::shared_ptr<Decompressor> builtin, CompressionType type, uint32_t threads,
                    bool may_sample, GenerationPtr generation)
      : codec_(std::move(codec)),
        builtin_(std::move(builtin)),
        type_(type),
        threads_(threads),
        may_sample_(may_sample),
        generation_(std::move(generation)) {}

  const char* Name() const override { return "ZiptierCompressor"; }

  CompressionType GetPreferredCompressionType() const override { return type_; }

  uint32_t GetRecommendedParallelThreads() const override { return threads_; }

  Slice GetSerializedDict() const override { return BytesOf(generation_); }

  DictConfig GetDictGuidance(CacheEntryRole role) const override {
    if (role != CacheEntryRole::kDataBlock) {
      return DictDisabled{};
    }
    size_t sample_bytes = 0;
    GenerationPtr generation = Own(zt_codec_guidance(codec_.get(), may_sample_, &sample_bytes));
    if (generation != nullptr) {
      const Slice bytes = BytesOf(generation);
      std::lock_guard<std::mutex> lock(guided_mutex_);
      guided_ = std::move(generation);
      return DictPreDefined{bytes.ToString()};
    }
    if (sample_bytes > 0) {
      return DictSampling{sample_bytes};
    }
    return DictDisabled{};
  }

  std::unique_ptr<Compressor> Clone() const override {
    return std::make_unique<ZiptierCompressor>(codec_, builtin_, type_, threads_, may_sample_, generation_);
  }

  std::unique_ptr<Compressor> MaybeCloneSpecialized(CacheEntryRole role, DictConfigArgs&& args) const override {
    if (role != CacheEntryRole::kDataBlock && role != CacheEntryRole::kMisc) {
      return nullptr;
    }
    GenerationPtr generation;
    if (auto* samples = std::get_if<DictSamples>(&args); samples != nullptr && !samples->empty()) {
      generation = Own(zt_codec_train(codec_.get(), samples->sample_data.data(), samples->sample_lens.data(),
                                      samples->sample_lens.size()));
    } else if (auto* given = std::get_if<DictPreDefined>(&args); given != nullptr && !given->dict_data.empty()) {
      Message error;
      bool is_damaged = false;
      generation = Own(zt_generation_load(given->dict_data.data(), given->dict_data.size(), &is_damaged, error.data(),
                                          error.size()));
    }
    if (generation == nullptr) {
      return nullptr;
    }
    return std::make_unique<ZiptierCompressor>(codec_, builtin_, type_, threads_, may_sample_, std::move(generation));
  }

  // RocksDB verifies blocks of a predefined dictionary with the decompressor of the compressor without a dictionary. So
  // that decompressor must know the recommended generation.
  std::shared_ptr<Decompressor> GetOptimizedDecompressor() const override {
    std::lock_guard<std::mutex> lock(guided_mutex_);
    return std::make_shared<ZiptierDecompressor>(codec_, builtin_, generation_ != nullptr ? generation_ : guided_,
                                                 Slice());
  }

  Status CompressBlock(Slice raw, char* out, size_t* out_bytes, CompressionType* type, ManagedWorkingArea*) override {
    const int made = zt_pack(codec_.get(), generation_.get(), static_cast<uint8_t>(type_), raw.data(), raw.size(), out,
                             out_bytes);
    if (made < 0) {
      *type = kNoCompression;
      *out_bytes = 1;  // tried, and declined
    } else {
      *type = static_cast<CompressionType>(made);
    }
    return Status::OK();
  }

 private:
  CodecPtr codec_;
  std::shared_ptr<Decompressor> builtin_;
  CompressionType type_;
  uint32_t threads_;
  // While it samples, RocksDB keeps the file's blocks in memory.
  bool may_sample_;
  GenerationPtr generation_;
  mutable std::mutex guided_mutex_;
  mutable GenerationPtr guided_;
};

struct ManagerOptions {
  std::string format = "auto";
  std::string path = "auto";
  std::string huffman = "dynamic";
  std::string model;
  int level = 0;
  uint32_t parallel_threads = 0;
  bool verify = false;
  bool force = false;
};

const std::unordered_map<std::string, OptionTypeInfo>& OptionTypes() {
  // Never destroyed: threads of RocksDB may still read it while the process ends.
  static const auto& kTypes = *new std::unordered_map<std::string, OptionTypeInfo>{
      {"format", Option(&ManagerOptions::format, OptionType::kString)},
      {"path", Option(&ManagerOptions::path, OptionType::kString)},
      {"huffman", Option(&ManagerOptions::huffman, OptionType::kString)},
      {"model", Option(&ManagerOptions::model, OptionType::kString)},
      {"level", Option(&ManagerOptions::level, OptionType::kInt)},
      {"parallel_threads", Option(&ManagerOptions::parallel_threads, OptionType::kUInt32T)},
      {"verify", Option(&ManagerOptions::verify, OptionType::kBoolean)},
      {"force", Option(&ManagerOptions::force, OptionType::kBoolean)},
  };
  return kTypes;
}

class ZiptierManager : public CompressionManager {
 public:
  ZiptierManager(const char* format, int level) : builtin_(GetBuiltinV2CompressionManager()) {
    options_.format = format;
    options_.level = level;
    RegisterOptions("ZiptierOptions", &options_, &OptionTypes());
  }

  const char* Name() const override { return kName; }

  const char* CompatibilityName() const override {
    if (PrivateType() == kNoCompression) {
      return builtin_->CompatibilityName();
    }
    return options_.format == "token" && options_.level == kDenseLevel ? kDenseName : kPrivateName;
  }

  Status PrepareOptions(const ConfigOptions& config) override {
    Status status = Open();
    return status.ok() ? Customizable::PrepareOptions(config) : status;
  }

  bool SupportsCompressionType(CompressionType type) const override {
    return (type != kNoCompression && type == PrivateType()) || builtin_->SupportsCompressionType(type);
  }

  std::string CompressionTypeToString(CompressionType type) const override {
    switch (static_cast<uint8_t>(type)) {
      case 0x80:
        return "ZiptierToken";
      case 0x81:
        return "ZiptierZstd";
      case 0x82:
        return "ZiptierCanned";
      case 0x83:
        return "ZiptierEntropy";
      case 0x84:
        return "ZiptierEntropyParts";
      default:
        return builtin_->CompressionTypeToString(type);
    }
  }

  std::unique_ptr<Compressor> GetCompressor(const CompressionOptions& options, CompressionType preferred) override {
    return CompressorFor(options, preferred, true);
  }

  // While RocksDB samples a file, it buffers as much of the file as the file may hold, unless the options name a bound.
  // The length of two kinds of files has no limit. One kind is written by neither flush nor compaction
  // (`SstFileWriter`). The other is written by a universal compaction to level 0; with one level, such a file holds all
  // of the data.
  std::unique_ptr<Compressor> GetCompressorForSST(const FilterBuildingContext& context,
                                                  const CompressionOptions& options,
                                                  CompressionType preferred) override {
    const bool has_end = context.reason != TableFileCreationReason::kMisc;
    const bool is_universal = context.compaction_style == kCompactionStyleUniversal;
    const bool is_everything = context.reason == TableFileCreationReason::kCompaction && is_universal &&
                               context.level_at_creation <= 0;
    return CompressorFor(options, preferred, (has_end && !is_everything) || options.max_dict_buffer_bytes > 0);
  }

  std::shared_ptr<Decompressor> GetDecompressor() override {
    if (!Open().ok()) {
      return builtin_->GetDecompressor();
    }
    return std::make_shared<ZiptierDecompressor>(codec_, builtin_->GetDecompressor(), nullptr, Slice());
  }

 private:
  std::unique_ptr<Compressor> CompressorFor(const CompressionOptions& options, CompressionType preferred,
                                            bool may_sample) {
    if (preferred == kNoCompression || preferred == kDisableCompressionOption) {
      return nullptr;
    }
    if (Open().ok()) {
      const int type = zt_codec_takes(codec_.get(), static_cast<uint8_t>(preferred), options_.force);
      if (type >= 0) {
        const uint32_t threads = options_.parallel_threads > 0 ? options_.parallel_threads : options.parallel_threads;
        return std::make_unique<ZiptierCompressor>(codec_, builtin_->GetDecompressor(),
                                                   static_cast<CompressionType>(type), threads, may_sample, nullptr);
      }
    }
    return IsPrivate(preferred) ? nullptr : builtin_->GetCompressor(options, preferred);
  }

  // The type that names the private format of these options, if they ask for one.
  CompressionType PrivateType() const {
    if (options_.format == "token") {
      return kCustomCompression80;
    }
    const bool is_canned = options_.format == "deflate" && options_.huffman == "canned";
    return is_canned ? kCustomCompression82 : kNoCompression;
  }

  // Opens the codec when it is first needed: options may still be set one by one until then.
  Status Open() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (codec_ == nullptr) {
      Message error{};
      ZtCodec* codec =
          zt_codec_open(options_.format.c_str(), options_.path.c_str(), options_.huffman.c_str(), options_.level,
                        options_.verify, options_.model.c_str(), error.data(), error.size());
      if (codec == nullptr) {
        return Status::InvalidArgument(error.data());
      }
      codec_ = CodecPtr(codec, CloseCodec());
    }
    return Status::OK();
  }

  std::shared_ptr<CompressionManager> builtin_;
  ManagerOptions options_;
  std::mutex mutex_;
  CodecPtr codec_;
};

}  // namespace

void RegisterCompression(ObjectLibrary& library) {
  const auto add = [&library](const char* name, const char* format, int level) {
    library.AddFactory<CompressionManager>(
        name, [format, level](const std::string&, std::unique_ptr<CompressionManager>* guard, std::string*) {
          guard->reset(new ZiptierManager(format, level));
          return guard->get();
        });
  };
  add(kName, "auto", 0);
  add(kPrivateName, "token", 0);
  add(kDenseName, "token", kDenseLevel);
}

}  // namespace ziptier
