// Work on a whole database: show how its files are packed, and rewrite it so that it needs no plugin.

#include <rocksdb/convenience.h>
#include <rocksdb/db.h>
#include <rocksdb/table_properties.h>

#include <algorithm>
#include <map>
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

// The name of a file that needs the plugin; empty if none of the column family does.
Status FindPrivate(DB& db, ColumnFamilyHandle* family, std::string* file) {
  TablePropertiesCollection files;
  const Status status = db.GetPropertiesOfAllTables(family, &files);
  for (const auto& [name, properties] : files) {
    // Such as `ZiptierV1;80;`.
    if (properties->compression_name.rfind("Ziptier", 0) == 0) {
      *file = name;
    }
  }
  return status;
}

bool RewritesAll(const ColumnFamilyDescriptor& family) {
  const CompactionStyle style = family.options.compaction_style;
  return style == kCompactionStyleLevel || style == kCompactionStyleUniversal;
}

// Refuses a database of which compaction would leave private files, before anything is changed.
Status CheckRewritable(const DBOptions& db_options, const std::string& dir,
                       const std::vector<ColumnFamilyDescriptor>& families) {
  if (std::all_of(families.begin(), families.end(), RewritesAll)) {
    return Status::OK();
  }
  Opened opened;
  Status status = DB::OpenForReadOnly(db_options, dir, families, &opened.families, &opened.db);
  for (size_t i = 0; status.ok() && i < families.size(); ++i) {
    std::string file;
    if (!RewritesAll(families[i])) {
      status = FindPrivate(*opened.db, opened.families[i], &file);
    }
    if (!file.empty()) {
      status = Status::InvalidArgument("nothing was changed: column family " + families[i].name + " has " + file +
                                       ", which needs the plugin, and its compaction style rewrites no file; open the "
                                       "database once with compaction_style=kCompactionStyleUniversal, then try again");
    }
  }
  return status;
}

// Rewrites every file of a column family.
Status Rewrite(DB& db, ColumnFamilyHandle* family) {
  CompactRangeOptions compact;
  compact.bottommost_level_compaction = BottommostLevelCompaction::kForce;
  Status status = db.Flush(FlushOptions(), family);
  if (status.ok()) {
    status = db.CompactRange(compact, family, nullptr, nullptr);
  }
  std::string file;
  if (status.ok()) {
    status = FindPrivate(db, family, &file);
  }
  return file.empty() ? status : Status::Aborted("column family " + family->GetName() + " kept " + file);
}

Status MigrateOff(const std::string& dir, const std::string& compression) {
  DBOptions db_options;
  std::vector<ColumnFamilyDescriptor> families;
  // A merge operator or a filter of the application's that is missing here must stop this: files would be rewritten
  // without it.
  ConfigOptions config;
  config.ignore_unsupported_options = false;
  Status status = LoadOptions(config, dir, &db_options, &families);
  if (!status.ok()) {
    return status;
  }
  ColumnFamilyOptions wanted;
  status = GetColumnFamilyOptionsFromString(ConfigOptions(), wanted, "compression=" + compression, &wanted);
  if (!status.ok() || !IsBuiltin(wanted.compression)) {
    return Status::InvalidArgument("no compression of RocksDB's own is called " + compression +
                                   "; choose kZSTD, kLZ4Compression or another of its names");
  }
  // That option was for the program that made the database.
  db_options.error_if_exists = false;
  status = CheckRewritable(db_options, dir, families);
  if (!status.ok()) {
    return status;
  }
  for (ColumnFamilyDescriptor& family : families) {
    TakeOff(&family.options, wanted.compression);
  }
  Opened opened;
  status = DB::Open(db_options, dir, families, &opened.families, &opened.db);
  if (!status.ok()) {
    return status;
  }
  for (ColumnFamilyHandle* family : opened.families) {
    if (status.ok()) {
      status = Rewrite(*opened.db, family);
    }
  }
  if (status.ok()) {
    status = opened.db->VerifyChecksum();
  }
  return status.ok() ? status
                     : Status::Aborted(status.ToString() +
                                       "; OPTIONS no longer name the compression manager, and files that were not "
                                       "rewritten still need the plugin: migrate off again when the cause is gone, or "
                                       "set compression_manager and compression again");
}

struct Sum {
  uint64_t files = 0;
  uint64_t bytes = 0;
  uint64_t raw_bytes = 0;
  uint64_t file_bytes = 0;
};

Status Inspect(const std::string& dir, std::string* report) {
  DBOptions db_options;
  std::vector<ColumnFamilyDescriptor> families;
  Status status = LoadOptions(ConfigOptions(), dir, &db_options, &families);
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
    // Their paths are the names of the properties.
    ColumnFamilyMetaData described;
    opened.db->GetColumnFamilyMetaData(family, &described);
    std::map<std::string, uint64_t> sizes;
    for (const LevelMetaData& level : described.levels) {
      for (const SstFileMetaData& file : level.files) {
        sizes[file.db_path + file.name] = file.size;
      }
    }
    std::map<std::string, Sum> sums;
    for (const auto& [name, properties] : files) {
      Sum& sum = sums[properties->compression_name];
      sum.files += 1;
      sum.bytes += properties->data_size;
      sum.raw_bytes += properties->raw_key_size + properties->raw_value_size;
      sum.file_bytes += sizes[name];
    }
    for (const auto& [compression, sum] : sums) {
      *report += family->GetName() + "\t" + compression + "\t" + std::to_string(sum.files) + "\t" +
                 std::to_string(sum.bytes) + "\t" + std::to_string(sum.raw_bytes) + "\t" +
                 std::to_string(sum.file_bytes) + "\n";
    }
  }
  return Status::OK();
}

}  // namespace

// Both return 0, or 1 and RocksDB's words in `message`, a C string cut to `room` bytes (at least 1).

extern "C" int zt_migrate_off(const char* dir, const char* compression, char* message, size_t room) {
  return ziptier::Answer(message, room, nullptr, [&](std::string*) { return MigrateOff(dir, compression); });
}

// A line for each column family and compression: their names, files, bytes of data, raw bytes, bytes of the files,
// separated by tabs. `needed` gets the bytes that the whole takes, if it is not null.
extern "C" int zt_inspect(const char* dir, char* message, size_t room, size_t* needed) {
  return ziptier::Answer(message, room, needed, [&](std::string* report) { return Inspect(dir, report); });
}
