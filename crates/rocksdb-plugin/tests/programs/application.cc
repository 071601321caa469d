// An application with classes of its own, in a database of the private format.
//
//   application fill DIR merge|filter|factory     puts records by the class, flushes
//   application read DIR merge|filter|factory     reads them
//   application read-stock DIR merge              reads them with options that do not name the plugin
//   application fill DIR foreign                  puts records into a column family whose compression manager is the
//                                                 application's, and into one of the private format
//   application leave DIR merge|foreign           registers the classes, takes the database off the plugin in this
//                                                 process, and prints what it is told
//   application leave-throwing DIR merge          the same with a class that throws
//   application log DIR merge                     puts a record that is in the log alone
//   application read-log DIR merge                reads it

#include <dlfcn.h>
#include <rocksdb/advanced_compression.h>
#include <rocksdb/compaction_filter.h>
#include <rocksdb/convenience.h>
#include <rocksdb/db.h>
#include <rocksdb/merge_operator.h>
#include <rocksdb/utilities/object_registry.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>

#include "checks.h"

namespace {

using namespace rocksdb;

constexpr int kRecords = 5000;

// Joins what is merged by commas, which no operator of RocksDB's does with two of them.
class Joining : public AssociativeMergeOperator {
 public:
  const char* Name() const override { return "application.Joining"; }
  bool Merge(const Slice&, const Slice* before, const Slice& value, std::string* joined, Logger*) const override {
    *joined = before == nullptr ? value.ToString() : before->ToString() + ",," + value.ToString();
    return true;
  }
};

class Throwing : public Joining {
 public:
  bool Merge(const Slice&, const Slice*, const Slice&, std::string*, Logger*) const override {
    throw std::runtime_error("cannot merge");
  }
};

class KeepingAll : public CompactionFilter {
 public:
  const char* Name() const override { return "application.KeepingAll"; }
};

class KeepingAllFactory : public CompactionFilterFactory {
 public:
  const char* Name() const override { return "application.KeepingAllFactory"; }
  std::unique_ptr<CompactionFilter> CreateCompactionFilter(const CompactionFilter::Context&) override {
    return std::make_unique<KeepingAll>();
  }
};

class Foreign : public CompressionManagerWrapper {
 public:
  Foreign() : CompressionManagerWrapper(GetBuiltinV2CompressionManager()) {}
  const char* Name() const override { return "application.Foreign"; }
};

Options Private() {
  Options options;
  ConfigOptions config;
  config.ignore_unsupported_options = false;
  Check(GetOptionsFromString(
            config, options,
            "compression_manager={id=ziptier;format=token};compression=kCustomCompression80;create_if_missing=true",
            &options),
        "options");
  return options;
}

Options OptionsOf(const std::string& kind) {
  static KeepingAll filter;
  Options options = Private();
  if (kind == "merge") {
    options.merge_operator = std::make_shared<Joining>();
  } else if (kind == "filter") {
    options.compaction_filter = &filter;
  } else if (kind == "factory") {
    options.compaction_filter_factory = std::make_shared<KeepingAllFactory>();
  } else if (kind == "foreign") {
    options.compression_manager = std::make_shared<Foreign>();
    options.compression = kZSTD;
  } else {
    Fail("kind", kind);
  }
  return options;
}

std::string KeyOf(int i) { return "key:" + std::to_string(1000000 + i); }

std::string ValueOf(int i) { return "a value of the application's, number " + std::to_string(i * 7919 % 5000); }

void Fill(DB& db, bool merges) {
  for (const char* round : {"first", "second"}) {
    for (int i = 0; i < kRecords; ++i) {
      const std::string value = ValueOf(i) + " " + round;
      Check(merges ? db.Merge(WriteOptions(), KeyOf(i), value) : db.Put(WriteOptions(), KeyOf(i), value), "put");
    }
    Check(db.Flush(FlushOptions()), "flush");
  }
}

void FillPrivateFamily(DB& db) {
  ColumnFamilyHandle* family = nullptr;
  Check(db.CreateColumnFamily(Private(), "private", &family), "create a column family");
  for (int i = 0; i < kRecords; ++i) {
    Check(db.Put(WriteOptions(), family, KeyOf(i), ValueOf(i)), "put");
  }
  Check(db.Flush(FlushOptions(), family), "flush");
  Check(db.DestroyColumnFamilyHandle(family), "let go of a column family");
}

void Read(DB& db, bool merges) {
  for (int i = 0; i < kRecords; ++i) {
    std::string value;
    Check(db.Get(ReadOptions(), KeyOf(i), &value), "get");
    if (value != (merges ? ValueOf(i) + " first,," : "") + ValueOf(i) + " second") {
      Fail("another value", value);
    }
  }
}

template <typename Operator>
void Leave(const char* dir) {
  ObjectLibrary::Default()->AddFactory<MergeOperator>(
      "application.Joining", [](const std::string&, std::unique_ptr<MergeOperator>* guard, std::string*) {
        guard->reset(new Operator());
        return guard->get();
      });
  ObjectLibrary::Default()->AddFactory<CompressionManager>(
      "application.Foreign", [](const std::string&, std::unique_ptr<CompressionManager>* guard, std::string*) {
        guard->reset(new Foreign());
        return guard->get();
      });
  using Function = int (*)(const char*, const char*, char*, size_t);
  const auto leave = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, "ziptier_rocksdb_migrate_off"));
  char message[1024] = "the plugin is not there";
  if (leave == nullptr || leave(dir, "kZSTD", message, sizeof message) != 0) {
    Fail("leave", message);
  }
  std::printf("%s", message);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    Fail("usage", "application COMMAND DIR KIND");
  }
  const std::string command = argv[1];
  const bool merges = std::string(argv[3]) == "merge";
  if (command == "leave") {
    Leave<Joining>(argv[2]);
    return 0;
  }
  if (command == "leave-throwing") {
    Leave<Throwing>(argv[2]);
    return 0;
  }
  // A database that left is read without naming the plugin.
  Options options;
  if (command == "read-stock") {
    options.merge_operator = std::make_shared<Joining>();
  } else {
    options = OptionsOf(argv[3]);
  }
  std::unique_ptr<DB> db;
  Check(DB::Open(options, argv[2], &db), "open");
  if (command == "fill") {
    Fill(*db, merges);
    if (std::string(argv[3]) == "foreign") {
      FillPrivateFamily(*db);
    }
  } else if (command == "log") {
    Check(db->Put(WriteOptions(), "one", "before"), "put");
    Check(db->Merge(WriteOptions(), "one", "behind"), "merge");
  } else if (command == "read-log") {
    std::string value;
    Check(db->Get(ReadOptions(), "one", &value), "get");
    if (value != "before,,behind") {
      Fail("another value", value);
    }
  } else {
    Read(*db, merges);
  }
  return 0;
}
