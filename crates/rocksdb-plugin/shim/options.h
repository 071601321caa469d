#pragma once

#include <rocksdb/utilities/options_type.h>

namespace ziptier {

// How a member of a struct of options is read from a string, and written to one.
template <typename Options, typename Field>
ROCKSDB_NAMESPACE::OptionTypeInfo Option(Field Options::* field, ROCKSDB_NAMESPACE::OptionType type) {
  // The offset of a member, as `offsetof` gives it for a class that is no standard layout.
  static const Options kSample;
  const auto at = reinterpret_cast<const char*>(&(kSample.*field)) - reinterpret_cast<const char*>(&kSample);
  return {static_cast<int>(at), type};
}

}  // namespace ziptier
