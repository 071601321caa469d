#pragma once

#include <rocksdb/utilities/options_type.h>

namespace ziptier {

// Describes how to parse a member of a struct of options from a string, and to write it to one.
template <typename Options, typename Field>
ROCKSDB_NAMESPACE::OptionTypeInfo Option(Field Options::* field, ROCKSDB_NAMESPACE::OptionType type) {
  // The offset of a member, as `offsetof` gives it for a class that is no standard layout.
  static const Options kSample;
  const auto at = reinterpret_cast<const char*>(&(kSample.*field)) - reinterpret_cast<const char*>(&kSample);
  return {static_cast<int>(at), type};
}

}  // namespace ziptier
