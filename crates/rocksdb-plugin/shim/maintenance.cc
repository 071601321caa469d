// What a user does with a whole database: see how its files are packed, and rewrite it so that it needs no plugin.

#include <rocksdb/convenience.h>
#include <rocksdb/db.h>
#include <rocksdb/table_properties.h>
#include <rocksdb/utilities/options_util.h>

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace ROCKSDB_NAMESPACE;

struct Opened {
  std::unique_ptr<DB> db;
  std::vector<ColumnFamilyHandle*> families;

  ~Opened() {
    for (ColumnFamilyHandle* family : families) {
      db->DestroyColumnFamilyHandle(family);
    }
  }
};

bool IsBuiltin(CompressionType type) { return static_cast<unsigned char>(type) < 0x80; }

void TakeOff(ColumnFamilyOptions* options, CompressionType instead) {
  options->compression_manager = nullptr;
  if (!IsBuiltin(options->compression)) {
    options->compression = instead;
  }
  if (options->bottommost_compression != kDisableCompressionOption && !IsBuiltin(options->bottommost_compression)) {
    options->bottommost_compression = instead;
  }
  for (CompressionType& type : options->compression_per_level) {
    if (!IsBuiltin(type)) {
      type = instead;
    }
  }
}

// The compression that a file names, such as `ZiptierV1;80;`, without the types in it.
bool NeedsPlugin(const TableProperties& properties) { return properties.compression_name.rfind("Ziptier", 0) == 0; }

Status MigrateOff(const std::string& dir, const std::string& compression) {
  DBOptions db_options;
  std::vector<ColumnFamilyDescriptor> families;
  // A merge operator or a filter of the application's that is missing here must stop this: files would be rewritten without it.
  ConfigOptions config;
  config.ignore_unsupported_options = false;
  Status status = LoadLatestOptions(config, dir, &db_options, &families);
  if (!status.ok()) {
    return status;
  }
  ColumnFamilyOptions wanted;
  status = GetColumnFamilyOptionsFromString(ConfigOptions(), wanted, "compression=" + compression, &wanted);
  if (!status.ok() || !IsBuiltin(wanted.compression)) {
    return Status::InvalidArgument("no compression of RocksDB's own is called " + compression +
                                   "; choose kZSTD, kLZ4Compression or another of its names");
  }
  for (ColumnFamilyDescriptor& family : families) {
    TakeOff(&family.options, wanted.compression);
  }
  Opened opened;
  status = DB::Open(db_options, dir, families, &opened.families, &opened.db);
  if (!status.ok()) {
    return status;
  }
  CompactRangeOptions compact;
  compact.bottommost_level_compaction = BottommostLevelCompaction::kForce;
  for (ColumnFamilyHandle* family : opened.families) {
    status = opened.db->Flush(FlushOptions(), family);
    if (status.ok()) {
      status = opened.db->CompactRange(compact, family, nullptr, nullptr);
    }
    TablePropertiesCollection files;
    if (status.ok()) {
      status = opened.db->GetPropertiesOfAllTables(family, &files);
    }
    if (!status.ok()) {
      return status;
    }
    for (const auto& [name, properties] : files) {
      if (NeedsPlugin(*properties)) {
        return Status::Aborted("column family " + family->GetName() + " kept " + name +
                               ", which needs the plugin: its compaction style does not rewrite every file");
      }
    }
  }
  return opened.db->VerifyChecksum();
}

struct Sum {
  uint64_t files = 0;
  uint64_t bytes = 0;
  uint64_t raw_bytes = 0;
};

Status Inspect(const std::string& dir, std::string* report) {
  DBOptions db_options;
  std::vector<ColumnFamilyDescriptor> families;
  Status status = LoadLatestOptions(ConfigOptions(), dir, &db_options, &families);
  if (!status.ok()) {
    return status;
  }
  Opened opened;
  status = DB::OpenForReadOnly(db_options, dir, families, &opened.families, &opened.db);
  if (!status.ok()) {
    return status;
  }
  for (ColumnFamilyHandle* family : opened.families) {
    TablePropertiesCollection files;
    status = opened.db->GetPropertiesOfAllTables(family, &files);
    if (!status.ok()) {
      return status;
    }
    std::map<std::string, Sum> sums;
    for (const auto& [name, properties] : files) {
      Sum& sum = sums[properties->compression_name];
      sum.files += 1;
      sum.bytes += properties->data_size;
      sum.raw_bytes += properties->raw_key_size + properties->raw_value_size;
    }
    for (const auto& [compression, sum] : sums) {
      *report += family->GetName() + "\t" + compression + "\t" + std::to_string(sum.files) + "\t" +
                 std::to_string(sum.bytes) + "\t" + std::to_string(sum.raw_bytes) + "\n";
    }
  }
  return Status::OK();
}

int Answer(const Status& status, const std::string& text, char* message, size_t room) {
  const std::string answer = status.ok() ? text : status.ToString();
  const size_t length = answer.size() < room ? answer.size() : room - 1;
  std::memcpy(message, answer.data(), length);
  message[length] = 0;
  return status.ok() ? 0 : 1;
}

}  // namespace

// Both return 0, or 1 and RocksDB's words in `message`, a C string cut to `room` bytes (at least 1).

extern "C" int zt_migrate_off(const char* dir, const char* compression,
                                                                     char* message, size_t room) {
  return Answer(MigrateOff(dir, compression), "", message, room);
}

// A line for each column family and compression: their names, files, bytes of data, raw bytes, separated by tabs.
extern "C" int zt_inspect(const char* dir, char* message, size_t room) {
  std::string report;
  const Status status = Inspect(dir, &report);
  return Answer(status, report, message, room);
}
