// A database as its folder describes it, opened by the functions that serve a whole database.
#pragma once

#include <rocksdb/convenience.h>
#include <rocksdb/db.h>
#include <rocksdb/utilities/options_util.h>

#include <memory>
#include <string>
#include <vector>

namespace ziptier {

struct Opened {
  std::unique_ptr<ROCKSDB_NAMESPACE::DB> db;
  std::vector<ROCKSDB_NAMESPACE::ColumnFamilyHandle*> families;

  ~Opened() {
    for (ROCKSDB_NAMESPACE::ColumnFamilyHandle* family : families) {
      db->DestroyColumnFamilyHandle(family);
    }
  }
};

// The options that a database was opened with last.
inline ROCKSDB_NAMESPACE::Status LoadOptions(const ROCKSDB_NAMESPACE::ConfigOptions& config, const std::string& dir,
                                             ROCKSDB_NAMESPACE::DBOptions* db_options,
                                             std::vector<ROCKSDB_NAMESPACE::ColumnFamilyDescriptor>* families) {
  using ROCKSDB_NAMESPACE::Status;
  ROCKSDB_NAMESPACE::Env* env = config.env;
  const Status folder = env->FileExists(dir);
  if (folder.IsNotFound()) {
    return Status::InvalidArgument("looked for a database of RocksDB in " + dir +
                                   ", found no such folder; name the folder of the database");
  }
  const Status status = ROCKSDB_NAMESPACE::LoadLatestOptions(config, dir, db_options, families);
  if (!status.IsNotFound()) {
    return status;
  }
  if (env->FileExists(dir + "/CURRENT").ok()) {
    return Status::InvalidArgument("looked for a database of RocksDB in " + dir +
                                   ", found a file CURRENT and no file OPTIONS-*; open the database once with RocksDB "
                                   "11.8.1, which writes that file");
  }
  return Status::InvalidArgument("looked for a database of RocksDB in " + dir +
                                 ", found neither a file CURRENT nor OPTIONS-*; name the folder that has them");
}

}  // namespace ziptier
