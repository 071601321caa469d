// A program that calls nothing of ziptier's and is linked with it.
//
//   stranger DIR OPTIONS     puts records, and tells how each file is compressed

#include <rocksdb/convenience.h>
#include <rocksdb/db.h>
#include <rocksdb/table_properties.h>

#include <cstdio>
#include <memory>
#include <string>

#include "checks.h"

int main(int argc, char** argv) {
  using namespace rocksdb;
  if (argc != 3) {
    Fail("usage: stranger DIR OPTIONS");
  }
  Options options;
  options.create_if_missing = true;
  Check(GetOptionsFromString(ConfigOptions(), options, argv[2], &options), "options");
  std::unique_ptr<DB> db;
  Check(DB::Open(options, argv[1], &db), "open");
  for (int i = 0; i < 1000; ++i) {
    Check(db->Put(WriteOptions(), "key:" + std::to_string(i), "value " + std::to_string(i * 7919)), "put");
  }
  Check(db->Flush(FlushOptions()), "flush");
  TablePropertiesCollection files;
  Check(db->GetPropertiesOfAllTables(&files), "properties");
  for (const auto& [name, properties] : files) {
    std::printf("%s\n", properties->compression_name.c_str());
  }
  return 0;
}
