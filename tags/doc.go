// SPDX-License-Identifier: Apache-2.0

// Package tags reads, orders and compares the tags of SUSE's container images.
//
// # Words
//
// A [Tag] has one of three forms:
//
//	short         2.6.2                 application version
//	intermediate  2.6.2-rev1            + image revision (kiwi's <version>)
//	long          2.6.2-rev1-build5.1   + build (OBS's RELEASE)
//
// Short and intermediate tags float: a rebuild moves them to a new digest.
// The long tag is meant to stay.
//
// # Grammar
//
//	OCI tag = [A-Za-z0-9_][A-Za-z0-9._-]{0,127}
//	core    = app [ "-rev" num [ "-build" num *( "." num ) ] ]
//	app     = [ "v" ] num *( "." num )
//	num     = "0" / nonzero-digit *digit
//
// It is case sensitive, anchored, and of ASCII digits only; a number may be as
// long as the tag is. Other spellings need a [Dialect] that a configuration
// names.
//
// What is no core tag falls in one of three classes, each with its own error:
//
//   - malformed ([ErrMalformed]): the scheme is SUSE's, the tag is wrong. Its
//     publisher should hear of it.
//   - foreign ([ErrForeign]): a tag of another scheme (latest, a hash,
//     a signature). Ignored, but counted.
//   - invalid ([ErrInvalid]): no registry can hold such a tag.
//
// Malformed and foreign are told apart by the marks of the scheme, and only
// behind a dotted number:
//
//   - "-rev", in any case of letters and not followed by a letter, is a mark.
//   - "-build" directly behind the number is a mark, if only digits and dots
//     follow and these are not eight or more digits without a dot. OBS's
//     RELEASE always has a dot (check-in.rebuild), while others write a date
//     there: v1.14.7-build20260909, v1.21.10-build2021041301.
//   - Without a mark nothing says SUSE, so 20.04.1 and V1.2 are foreign, not
//     malformed.
//
// # Promises
//
// Nothing here guesses: no coercion to semantic versions (four parts are fine,
// and -rev1 is newer than none), no date parsing, no dialect found out from a
// tag. A tag proves nothing about content: decide by digest, present by tag.
// A bare dotted number is a short tag by grammar even where a publisher means a
// build number (BCI's 15.5.36.5.67); only configuration can tell.
//
// All functions are pure and safe for concurrent use.
package tags
