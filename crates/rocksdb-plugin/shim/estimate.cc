// Estimates the size of a database in other formats from a sample of its records, without any change.
//
// The estimate must not be used to choose options of one format: it compares formats by their usual options.
//
// 1. The database is opened for reading. In each column family some files are chosen, spread over all of its bytes.
// 2. RocksDB's own table builder cuts records of a chosen file into blocks. A compression manager that compresses
//    nothing keeps these blocks (`Keeper`).
// 3. Each format compresses the blocks of one file after the other, through the interface that RocksDB calls. It makes
//    and uses a file's dictionary as it would for the whole file. Each block is decompressed again and compared.
// 4. The bytes of the blocks, per byte of the records, are applied to all records of the database.

#include <rocksdb/advanced_compression.h>
#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <rocksdb/sst_file_reader.h>
#include <rocksdb/sst_file_writer.h>
#include <rocksdb/table.h>
#include <rocksdb/utilities/types_util.h>

#include <time.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "answer.h"
#include "whole_database.h"

namespace {

using namespace ROCKSDB_NAMESPACE;
using ziptier::LoadOptions;
using ziptier::Opened;

// Bytes of records that are read from one file at least: a dictionary is made of 2 MiB.
constexpr uint64_t kFileSampleBytes = 4 << 20;
// Bytes that are read in one piece.
constexpr uint64_t kStretchBytes = 256 << 10;
// Column families with less than this share of all records are taken to be like the others.
constexpr uint64_t kFamilyShare = 64;
// RocksDB writes the type and the checksum of a block behind it.
constexpr uint64_t kTrailerBytes = 5;
// The type and the sequence number behind each key.
constexpr uint64_t kKeyTrailerBytes = 8;
// Halvings of a range of keys on the way to a position: finer than a stretch in files of 64 MiB.
constexpr int kHalvings = 16;

struct Format {
  const char* name;
  // The manager's name in options; null for RocksDB's own.
  const char* manager;
  CompressionType compression;
};

constexpr std::array kFormats{
    Format{"lz4", nullptr, kLZ4Compression},
    Format{"zstd", nullptr, kZSTD},
    Format{"ziptier: token", "id=ziptier;format=token", kCustomCompression80},
    Format{"ziptier: canned deflate", "id=ziptier;format=deflate;huffman=canned", kCustomCompression82},
};

// The result of a format for the blocks of the sample.
struct Sum {
  double file_bytes = 0;
  uint64_t compress_ns = 0;
  uint64_t read_ns = 0;
};

struct Sums {
  uint64_t block_bytes = 0;
  std::array<Sum, kFormats.size()> formats;
};

struct Progress {
  void (*tell)(void* state, uint64_t done, uint64_t all);
  void* state;
  uint64_t done = 0;
  uint64_t all = 0;

  void Add(uint64_t bytes) {
    done = std::min(done + bytes, all);
    tell(state, done, all);
  }
};

using Blocks = std::vector<std::string>;

// Declines every block, and keeps those of data.
class Keeper : public Compressor {
 public:
  Keeper(std::shared_ptr<Blocks> blocks, bool keeps) : blocks_(std::move(blocks)), keeps_(keeps) {}

  const char* Name() const override { return "ZiptierKeeper"; }

  std::unique_ptr<Compressor> Clone() const override { return std::make_unique<Keeper>(blocks_, keeps_); }

  std::unique_ptr<Compressor> MaybeCloneSpecialized(CacheEntryRole role, DictConfigArgs&&) const override {
    return std::make_unique<Keeper>(blocks_, role == CacheEntryRole::kDataBlock);
  }

  Status CompressBlock(Slice raw, char*, size_t* out_bytes, CompressionType* type, ManagedWorkingArea*) override {
    if (keeps_) {
      blocks_->push_back(raw.ToString());
    }
    *type = kNoCompression;
    *out_bytes = 1;
    return Status::OK();
  }

 private:
  std::shared_ptr<Blocks> blocks_;
  bool keeps_;
};

class KeepingManager : public CompressionManagerWrapper {
 public:
  explicit KeepingManager(std::shared_ptr<Blocks> blocks)
      : CompressionManagerWrapper(GetBuiltinV2CompressionManager()), blocks_(std::move(blocks)) {}

  const char* Name() const override { return "ZiptierKeeping"; }

  std::unique_ptr<Compressor> GetCompressorForSST(const FilterBuildingContext&, const CompressionOptions&,
                                                  CompressionType) override {
    return std::make_unique<Keeper>(blocks_, false);
  }

 private:
  std::shared_ptr<Blocks> blocks_;
};

// A file of the database.
struct File {
  std::string path;
  std::string smallest_key;
  std::string largest_key;
  // Bytes of its keys and values.
  uint64_t raw_bytes;
};

// The key at a share of the way between two, where bytes are digits.
std::string Between(const std::string& low, const std::string& high, double share) {
  size_t same = 0;
  while (same < low.size() && same < high.size() && low[same] == high[same]) {
    ++same;
  }
  const auto number = [same](const std::string& key) {
    double value = 0;
    for (size_t i = same; i < same + 6; ++i) {
      value = value * 256 + (i < key.size() ? static_cast<unsigned char>(key[i]) : 0);
    }
    return value;
  };
  uint64_t between = static_cast<uint64_t>(number(low) + (number(high) - number(low)) * share);
  std::string digits(6, 0);
  for (size_t i = digits.size(); i-- > 0; between >>= 8) {
    digits[i] = static_cast<char>(between);
  }
  return low.substr(0, same) + digits;
}

// A column family, and how much of its files is sampled.
class Family {
 public:
  Family(DB* db, ColumnFamilyHandle* handle, Options options)
      : db_(db), handle_(handle), options_(std::move(options)), limit_per_kb_(MaxBytesPerKb()) {}

  // Finds the files.
  Status List() {
    TablePropertiesCollection properties;
    Status status = db_->GetPropertiesOfAllTables(handle_, &properties);
    ColumnFamilyMetaData described;
    db_->GetColumnFamilyMetaData(handle_, &described);
    for (const LevelMetaData& level : described.levels) {
      for (const SstFileMetaData& file : level.files) {
        const std::string path = file.db_path + file.name;
        const auto found = properties.find(path);
        if (found != properties.end()) {
          const TableProperties& of_file = *found->second;
          const uint64_t raw_bytes = of_file.raw_key_size + of_file.raw_value_size;
          files_.push_back({path, file.smallestkey, file.largestkey, raw_bytes});
          raw_bytes_ += raw_bytes;
          data_bytes_ += of_file.data_size;
          bytes_ += file.size;
        }
      }
    }
    return status.ok() && raw_bytes_ > 0 ? HaveBlocks() : status;
  }

  uint64_t bytes() const { return bytes_; }
  uint64_t data_bytes() const { return data_bytes_; }
  uint64_t raw_bytes() const { return raw_bytes_; }

  // Adds what the formats make of about so many bytes of records.
  Status Sample(uint64_t sample_bytes, Sums* sums, Progress* progress) {
    std::array<std::shared_ptr<CompressionManager>, kFormats.size()> managers;
    for (size_t i = 0; i < kFormats.size(); ++i) {
      managers[i] = GetBuiltinV2CompressionManager();
      if (kFormats[i].manager != nullptr) {
        const Status made = CompressionManager::CreateFromString(ConfigOptions(), kFormats[i].manager, &managers[i]);
        if (!made.ok()) {
          return made;
        }
      }
    }
    std::array<double, kFormats.size()> packed{};
    uint64_t sampled_bytes = 0;
    for (const auto& [file, bytes] : Choose(sample_bytes)) {
      Blocks blocks;
      uint64_t read_bytes = 0;
      Status status = Read(*file, bytes, &blocks, &read_bytes);
      sampled_bytes += read_bytes;
      progress->Add(read_bytes);
      // A dictionary serves the whole file.
      const double share = static_cast<double>(read_bytes) / std::max<uint64_t>(file->raw_bytes, 1);
      for (const std::string& block : blocks) {
        sums->block_bytes += block.size();
      }
      for (size_t i = 0; status.ok() && i < kFormats.size(); ++i) {
        status = Pack(*managers[i], kFormats[i].compression, blocks, share, &packed[i], &sums->formats[i]);
        progress->Add(read_bytes);
      }
      if (!status.ok()) {
        return status;
      }
    }
    for (size_t i = 0; i < kFormats.size(); ++i) {
      // Indexes and filters stay as they are.
      sums->formats[i].file_bytes += static_cast<double>(bytes_ - data_bytes_) +
                                     packed[i] * raw_bytes_ / std::max<uint64_t>(sampled_bytes, 1);
    }
    return Status::OK();
  }

 private:
  // Blocks alone are compressed.
  Status HaveBlocks() const {
    for (const char* type : {TableFactory::kPlainTableName(), TableFactory::kCuckooTableName()}) {
      if (options_.table_factory->IsInstanceOf(type)) {
        return Status::InvalidArgument("looked for blocks in files of the column family " + handle_->GetName() +
                                       ", found files of the type " + type +
                                       ", which have none; only blocks are compressed");
      }
    }
    return Status::OK();
  }

  int MaxBytesPerKb() const { return std::min(1023, options_.compression_opts.max_compressed_bytes_per_kb); }

  // Files and how many bytes are to be read of each: all, or some that lie at equal distances in the bytes of all.
  std::vector<std::pair<const File*, uint64_t>> Choose(uint64_t sample_bytes) const {
    std::vector<std::pair<const File*, uint64_t>> chosen;
    const uint64_t count = std::max<uint64_t>(sample_bytes / kFileSampleBytes, 1);
    uint64_t start = 0;
    uint64_t next = 0;
    for (const File& file : files_) {
      const uint64_t end = start + file.raw_bytes;
      uint64_t bytes = raw_bytes_ <= sample_bytes ? file.raw_bytes : 0;
      for (; bytes < file.raw_bytes && next < count && (2 * next + 1) * (raw_bytes_ / (2 * count)) < end; ++next) {
        bytes += kFileSampleBytes;
      }
      if (bytes > 0) {
        chosen.emplace_back(&file, std::min(bytes, file.raw_bytes));
      }
      start = end;
    }
    return chosen;
  }

  // The blocks that RocksDB cuts so many bytes of a file into.
  Status Read(const File& file, uint64_t bytes, Blocks* blocks, uint64_t* read_bytes) {
    SstFileReader reader(options_);
    Status status = reader.Open(file.path);
    if (!status.ok()) {
      return status;
    }
    const auto kept = std::make_shared<Blocks>();
    std::unique_ptr<Env> memory(NewMemEnv(options_.env));
    Options options = options_;
    options.env = memory.get();
    options.compression = kLZ4Compression;
    options.compression_per_level.clear();
    options.bottommost_compression = kDisableCompressionOption;
    options.compression_opts = CompressionOptions();
    options.compression_manager = std::make_shared<KeepingManager>(kept);
    SstFileWriter writer(EnvOptions(), options);
    status = writer.Open("/sample.sst");
    std::unique_ptr<Iterator> records = reader.NewTableIterator();
    const bool is_whole = bytes + kStretchBytes > file.raw_bytes;
    const uint64_t stretches = is_whole ? 1 : std::max<uint64_t>(bytes / kStretchBytes, 1);
    std::string last_key;
    bool has_last = false;
    for (uint64_t i = 0; status.ok() && i < stretches; ++i) {
      if (is_whole) {
        records->SeekToFirst();
      } else {
        const std::string key = KeyAt(file, static_cast<double>(i) / stretches);
        std::string target;
        status = GetInternalKeyForSeek(key, options_.comparator, &target);
        if (status.ok() && (!has_last || options_.comparator->Compare(key, last_key) > 0)) {
          records->Seek(target);
        }
      }
      const uint64_t end = is_whole ? UINT64_MAX : *read_bytes + bytes / stretches;
      for (; status.ok() && records->Valid() && *read_bytes < end; records->Next()) {
        ParsedEntryInfo entry;
        status = reader.ParseTableIteratorKey(records->key(), &entry);
        // Older versions of a key, which compaction drops, would come in an order that a new file refuses.
        if (!status.ok() || (has_last && options_.comparator->Compare(entry.user_key, last_key) <= 0)) {
          continue;
        }
        const bool is_delete = entry.type == kEntryDelete || entry.type == kEntrySingleDelete;
        status = is_delete ? writer.Delete(entry.user_key) : writer.Put(entry.user_key, records->value());
        last_key = entry.user_key.ToString();
        has_last = true;
        *read_bytes += entry.user_key.size() + kKeyTrailerBytes + records->value().size();
      }
      if (status.ok()) {
        status = records->status();
      }
    }
    if (status.ok() && has_last) {
      status = writer.Finish();
    }
    *blocks = std::move(*kept);
    return status;
  }

  // A key near a share of the bytes of a file. The database tells how many bytes lie before a key.
  std::string KeyAt(const File& file, double share) {
    const auto bytes_before = [&](const std::string& key) {
      const Range range(file.smallest_key, key);
      uint64_t bytes = 0;
      const Status status = db_->GetApproximateSizes(SizeApproximationOptions(), handle_, &range, 1, &bytes);
      return status.ok() ? static_cast<double>(bytes) : 0.0;
    };
    const double wanted = bytes_before(file.largest_key) * share;
    double low = 0;
    double high = 1;
    for (int i = 0; share > 0 && i < kHalvings; ++i) {
      const double middle = (low + high) / 2;
      (bytes_before(Between(file.smallest_key, file.largest_key, middle)) < wanted ? low : high) = middle;
    }
    return share > 0 ? Between(file.smallest_key, file.largest_key, low) : file.smallest_key;
  }

  // Packs the blocks of a file as RocksDB's table builder does, and reads them again.
  Status Pack(CompressionManager& manager, CompressionType compression, const Blocks& blocks, double share,
              double* packed, Sum* sum) const {
    const std::unique_ptr<Compressor> basic = manager.GetCompressor(CompressionOptions(), compression);
    if (basic == nullptr) {
      return Status::NotSupported("RocksDB was built without one of the compressions that are compared");
    }
    const std::unique_ptr<Compressor> compressor = ForBlocks(*basic, blocks);
    const Slice dictionary = compressor->GetSerializedDict();
    std::shared_ptr<Decompressor> decompressor = basic->GetOptimizedDecompressor();
    if (decompressor == nullptr) {
      decompressor = manager.GetDecompressor();
    }
    if (!dictionary.empty()) {
      std::unique_ptr<Decompressor> with_dictionary;
      const Status status = decompressor->MaybeCloneForDict(dictionary, &with_dictionary);
      if (!status.ok()) {
        return status;
      }
      decompressor = std::move(with_dictionary);
      *packed += dictionary.size() * share;
    }
    Compressor::ManagedWorkingArea packing = compressor->ObtainWorkingArea();
    Decompressor::ManagedWorkingArea reading = decompressor->ObtainWorkingArea(compression);
    std::string target;
    std::string again;
    for (const std::string& block : blocks) {
      size_t bytes = block.size() * limit_per_kb_ >> 10;
      CompressionType type = kNoCompression;
      target.resize(bytes);
      const uint64_t start = CpuNs();
      Status status = compressor->CompressBlock(block, target.data(), &bytes, &type, &packing);
      sum->compress_ns += CpuNs() - start;
      if (status.ok() && type != kNoCompression) {
        status = ReadAgain(*decompressor, {type, Slice(target.data(), bytes), 0, &reading}, block, &again, sum);
      }
      if (!status.ok()) {
        return status;
      }
      *packed += (type == kNoCompression ? block.size() : bytes) + kTrailerBytes;
    }
    return Status::OK();
  }

  static Status ReadAgain(Decompressor& decompressor, Decompressor::Args args, const std::string& block,
                          std::string* target, Sum* sum) {
    target->resize(block.size());
    const uint64_t start = CpuNs();
    Status status = decompressor.ExtractUncompressedSize(args);
    if (status.ok() && args.uncompressed_size == block.size()) {
      status = decompressor.DecompressBlock(args, target->data());
    }
    sum->read_ns += CpuNs() - start;
    const bool is_same = !status.ok() || *target == block;
    return is_same ? status : Status::Corruption("a block of the sample was not equal after it was decompressed");
  }

  // The compressor of a file's blocks, with the dictionary that the file gets.
  static std::unique_ptr<Compressor> ForBlocks(const Compressor& basic, const Blocks& blocks) {
    Compressor::DictConfigArgs dictionary = Compressor::DictDisabled{};
    Compressor::DictConfig guidance = basic.GetDictGuidance(CacheEntryRole::kDataBlock);
    if (auto* given = std::get_if<Compressor::DictPreDefined>(&guidance)) {
      dictionary = std::move(*given);
    } else if (const auto* sampling = std::get_if<Compressor::DictSampling>(&guidance);
               sampling != nullptr && sampling->max_sample_bytes > 0) {
      uint64_t bytes = 0;
      for (const std::string& block : blocks) {
        bytes += block.size();
      }
      // Blocks from the whole file, as RocksDB takes them.
      Compressor::DictSamples samples;
      const double step = std::max(1.0, static_cast<double>(bytes) / static_cast<double>(sampling->max_sample_bytes));
      for (double at = 0; at < static_cast<double>(blocks.size()); at += step) {
        const std::string& block = blocks[static_cast<size_t>(at)];
        samples.sample_data += block;
        samples.sample_lens.push_back(block.size());
      }
      dictionary = std::move(samples);
    }
    return basic.CloneMaybeSpecialized(CacheEntryRole::kDataBlock, std::move(dictionary));
  }

  static uint64_t CpuNs() {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
  }

  DB* db_;
  ColumnFamilyHandle* handle_;
  Options options_;
  size_t limit_per_kb_;
  std::vector<File> files_;
  uint64_t bytes_ = 0;
  uint64_t data_bytes_ = 0;
  uint64_t raw_bytes_ = 0;
};

Status Estimate(const std::string& dir, uint64_t sample_bytes, Progress progress, std::string* report) {
  DBOptions db_options;
  std::vector<ColumnFamilyDescriptor> described;
  Status status = LoadOptions(ConfigOptions(), dir, &db_options, &described);
  if (!status.ok()) {
    return status;
  }
  Opened opened;
  status = DB::OpenForReadOnly(db_options, dir, described, &opened.families, &opened.db);
  std::vector<Family> families;
  uint64_t bytes = 0;
  uint64_t raw_bytes = 0;
  for (size_t i = 0; status.ok() && i < opened.families.size(); ++i) {
    families.emplace_back(opened.db.get(), opened.families[i], Options(db_options, described[i].options));
    status = families.back().List();
    bytes += families.back().bytes();
    raw_bytes += families.back().raw_bytes();
  }
  if (!status.ok()) {
    return status;
  }
  if (raw_bytes == 0) {
    return Status::InvalidArgument("looked for records in files of " + dir +
                                   ", found none; a database that is new has them in its log alone");
  }
  std::erase_if(families, [&](const Family& family) { return family.raw_bytes() < raw_bytes / kFamilyShare; });
  uint64_t bytes_of_sampled = 0;
  uint64_t raw_bytes_of_sampled = 0;
  for (const Family& family : families) {
    bytes_of_sampled += family.bytes();
    raw_bytes_of_sampled += family.raw_bytes();
  }
  // Each byte is read once, and packed by each format.
  progress.all = std::min(sample_bytes, raw_bytes_of_sampled) * (1 + kFormats.size());
  Sums sums;
  for (Family& family : families) {
    const double share = static_cast<double>(family.raw_bytes()) / raw_bytes_of_sampled;
    status = family.Sample(static_cast<uint64_t>(sample_bytes * share), &sums, &progress);
    if (!status.ok()) {
      return status;
    }
  }
  const double scale = static_cast<double>(bytes) / std::max<uint64_t>(bytes_of_sampled, 1);
  *report += std::to_string(bytes) + "\t" + std::to_string(sums.block_bytes) + "\n";
  for (size_t i = 0; i < kFormats.size(); ++i) {
    const Sum& sum = sums.formats[i];
    *report += std::string(kFormats[i].name) + "\t" + std::to_string(static_cast<uint64_t>(sum.file_bytes * scale)) +
               "\t" + std::to_string(sum.compress_ns) + "\t" + std::to_string(sum.read_ns) + "\n";
  }
  return Status::OK();
}

}  // namespace

// A line with the bytes of all files, and the bytes of the blocks that were sampled. Then a line for each format: its
// name, the bytes of all files in that format, and the CPU nanoseconds to compress and to decompress the sample. `tell`
// gets the amount of work that is done.
extern "C" int zt_estimate(const char* dir, uint64_t sample_bytes,
                           void (*tell)(void* state, uint64_t done, uint64_t all), void* state, char* message,
                           size_t room, size_t* needed) {
  return ziptier::Answer(message, room, needed, [&](std::string* report) {
    return Estimate(dir, sample_bytes, Progress{tell, state}, report);
  });
}
