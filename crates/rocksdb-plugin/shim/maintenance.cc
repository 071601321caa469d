// Work on a whole database: show how its files are packed, and rewrite it for the plugin, or so that it needs no
// plugin.

#include <rocksdb/advanced_compression.h>
#include <rocksdb/convenience.h>
#include <rocksdb/db.h>
#include <rocksdb/table_properties.h>

#include <algorithm>
#include <functional>
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

// Puts `instead` in the place of every compression that `is_replaced` names.
void Replace(ColumnFamilyOptions* options, CompressionType instead, bool (*is_replaced)(CompressionType)) {
  const auto replace = [&](CompressionType& type) {
    if (is_replaced(type)) {
      type = instead;
    }
  };
  replace(options->compression);
  if (options->bottommost_compression != kDisableCompressionOption) {
    replace(options->bottommost_compression);
  }
  std::for_each(options->compression_per_level.begin(), options->compression_per_level.end(), replace);
}

// The name of a file that needs the plugin; empty if none of the column family does.
Status FindPrivate(DB& db, ColumnFamilyHandle* family, std::string* file) {
  TablePropertiesCollection files;
  const Status status = db.GetPropertiesOfAllTables(family, &files);
  for (const auto& [name, properties] : files) {
    // Such as `ZiptierV1;80;` or `ZiptierV2;83;`.
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
  const Status status = db.Flush(FlushOptions(), family);
  return status.ok() ? db.CompactRange(compact, family, nullptr, nullptr) : status;
}

using Families = std::vector<ColumnFamilyDescriptor>;

// The options of a database that is to be rewritten.
Status LoadToRewrite(const std::string& dir, DBOptions* db_options, Families* families) {
  // A merge operator or a filter of the application's that is missing here must stop this: files would be rewritten
  // without it.
  ConfigOptions config;
  config.ignore_unsupported_options = false;
  const Status status = LoadOptions(config, dir, db_options, families);
  // That option was for the program that made the database.
  db_options->error_if_exists = false;
  return status;
}

// Opens a database to change it. RocksDB says of one that is in use only that a lock is taken.
Status OpenToRewrite(const DBOptions& db_options, const std::string& dir, const Families& families, Opened* opened) {
  const Status status = DB::Open(db_options, dir, families, &opened->families, &opened->db);
  if (status.IsIOError() && status.ToString().find(dir + "/LOCK") != std::string::npos) {
    return Status::InvalidArgument("nothing was changed: tried to open " + dir +
                                   " to rewrite it, found it open already; close it there, then try again (" +
                                   status.ToString() + ")");
  }
  return status;
}

// Rewrites every file of a database by these options, and has `check` look at each column family. `stopped` says in
// what state the database is when the rewriting ends in its midst.
Status RewriteAll(const DBOptions& db_options, const std::string& dir, const Families& families,
                  const std::function<Status(DB&, ColumnFamilyHandle*)>& check, const std::string& stopped) {
  Opened opened;
  Status status = OpenToRewrite(db_options, dir, families, &opened);
  if (!status.ok()) {
    return status;
  }
  for (ColumnFamilyHandle* family : opened.families) {
    if (status.ok()) {
      status = Rewrite(*opened.db, family);
    }
    if (status.ok()) {
      status = check(*opened.db, family);
    }
  }
  if (status.ok()) {
    status = opened.db->VerifyChecksum();
  }
  return status.ok() ? status : Status::Aborted(status.ToString() + "; " + stopped);
}

// Whether a column family has a compression manager that is not ours. The types of compression from 0x80 on mean what
// that manager makes of them.
bool HasForeignManager(const ColumnFamilyDescriptor& family) {
  const CompressionManager* manager = family.options.compression_manager.get();
  return manager != nullptr && std::string(manager->Name()) != "ziptier";
}

// Whether the options of a column family name a class or a compression of ours.
bool NamesOurs(const ColumnFamilyDescriptor& family) {
  if (HasForeignManager(family)) {
    return false;
  }
  const ColumnFamilyOptions& options = family.options;
  const std::vector<CompressionType>& levels = options.compression_per_level;
  return options.compression_manager != nullptr || !IsBuiltin(options.compression) ||
         (options.bottommost_compression != kDisableCompressionOption && !IsBuiltin(options.bottommost_compression)) ||
         !std::all_of(levels.begin(), levels.end(), IsBuiltin);
}

// Whether a database needs the plugin: for its options, or for a file.
Status NeedsPlugin(const DBOptions& db_options, const std::string& dir, const Families& families, bool* needs) {
  *needs = std::any_of(families.begin(), families.end(), NamesOurs);
  if (*needs) {
    return Status::OK();
  }
  Opened opened;
  Status status = DB::OpenForReadOnly(db_options, dir, families, &opened.families, &opened.db);
  std::string file;
  for (size_t i = 0; status.ok() && file.empty() && i < families.size(); ++i) {
    status = FindPrivate(*opened.db, opened.families[i], &file);
  }
  *needs = !file.empty();
  return status;
}

// `said` stays empty when the database was rewritten.
Status MigrateOff(const std::string& dir, const std::string& compression, std::string* said) {
  ColumnFamilyOptions wanted;
  Status status = GetColumnFamilyOptionsFromString(ConfigOptions(), wanted, "compression=" + compression, &wanted);
  if (!status.ok() || !IsBuiltin(wanted.compression)) {
    return Status::InvalidArgument("no compression of RocksDB's own is called " + compression +
                                   "; choose kZSTD, kLZ4Compression or another name of its options");
  }
  DBOptions db_options;
  Families families;
  status = LoadToRewrite(dir, &db_options, &families);
  bool needs_plugin = true;
  if (status.ok()) {
    status = NeedsPlugin(db_options, dir, families, &needs_plugin);
  }
  if (status.ok() && !needs_plugin) {
    *said = "nothing was changed: looked for files and options that need the plugin in " + dir + ", found none";
    return status;
  }
  if (status.ok()) {
    status = CheckRewritable(db_options, dir, families);
  }
  if (!status.ok()) {
    return status;
  }
  for (ColumnFamilyDescriptor& family : families) {
    if (!HasForeignManager(family)) {
      family.options.compression_manager = nullptr;
      Replace(&family.options, wanted.compression, [](CompressionType type) { return !IsBuiltin(type); });
    }
  }
  const auto check = [](DB& db, ColumnFamilyHandle* family) {
    std::string file;
    const Status status = FindPrivate(db, family, &file);
    return file.empty() ? status : Status::Aborted("column family " + family->GetName() + " kept " + file);
  };
  return RewriteAll(db_options, dir, families, check,
                    "OPTIONS no longer name the compression manager, and files that were not rewritten still need the "
                    "plugin: migrate off again when the cause is gone, or set compression_manager and compression "
                    "again");
}

// By the options of a column family that name a compression manager and a compression.
Status MigrateOn(const std::string& dir, const std::string& options) {
  ColumnFamilyOptions wanted;
  DBOptions db_options;
  Families families;
  Status status = GetColumnFamilyOptionsFromString(ConfigOptions(), wanted, options, &wanted);
  if (status.ok() && wanted.compression_manager == nullptr) {
    return Status::InvalidArgument("looked for a compression manager in the options " + options +
                                   ", found none; name one, as in compression_manager={id=ziptier;format=token}");
  }
  if (status.ok()) {
    status = LoadToRewrite(dir, &db_options, &families);
  }
  if (!status.ok()) {
    return status;
  }
  for (ColumnFamilyDescriptor& family : families) {
    if (!RewritesAll(family)) {
      return Status::InvalidArgument("nothing was changed: the compaction style of column family " + family.name +
                                     " rewrites no file; set the options in the application, and new files follow "
                                     "them");
    }
    family.options.compression_manager = wanted.compression_manager;
    family.options.compression = wanted.compression;
    // Levels that are not compressed stay so: the application wants them fast.
    Replace(&family.options, wanted.compression, [](CompressionType type) { return type != kNoCompression; });
  }
  const auto check = [](DB&, ColumnFamilyHandle*) { return Status::OK(); };
  return RewriteAll(db_options, dir, families, check,
                    "OPTIONS name the compression manager by now, and every file is whole: migrate on again when the "
                    "cause is gone, or migrate off");
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
      // RocksDB counts a trailer of eight bytes behind each key.
      const uint64_t trailer_bytes = std::min(properties->raw_key_size, 8 * properties->num_entries);
      sum.raw_bytes += properties->raw_key_size - trailer_bytes + properties->raw_value_size;
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

// All return 0, or 1 and RocksDB's words in `message`, a C string cut to `room` bytes (at least 1).

// `message` says so when there was nothing to rewrite; otherwise it is empty after a success.
extern "C" int zt_migrate_off(const char* dir, const char* compression, char* message, size_t room) {
  return ziptier::Answer(message, room, nullptr, [&](std::string* said) { return MigrateOff(dir, compression, said); });
}

extern "C" int zt_migrate_on(const char* dir, const char* options, char* message, size_t room) {
  return ziptier::Answer(message, room, nullptr, [&](std::string*) { return MigrateOn(dir, options); });
}

// A line for each column family and compression: their names, files, bytes of data, raw bytes, bytes of the files,
// separated by tabs. `needed` gets the bytes that the whole takes, if it is not null.
extern "C" int zt_inspect(const char* dir, char* message, size_t room, size_t* needed) {
  return ziptier::Answer(message, room, needed, [&](std::string* report) { return Inspect(dir, report); });
}
