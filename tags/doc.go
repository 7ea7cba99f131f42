// SPDX-License-Identifier: Apache-2.0

// Package tags reads, orders and compares the tags of container images, in SUSE's scheme and in others.
//
// # Words
//
// A [Tag] of SUSE's scheme has one of three forms:
//
//	short         2.6.2                 application version
//	intermediate  2.6.2-rev1            + image revision (kiwi's <version>)
//	long          2.6.2-rev1-build5.1   + build (OBS's RELEASE)
//
// Short and intermediate tags float: a rebuild moves them to a new digest. A publisher does not move a long tag. A tag
// of another scheme has one form, single. Its name ([Tag.Name]) is the part that stays the same when the numbers rise.
//
// # Grammars
//
// A [Scheme] defines how the tags of a repository are read. Without settings SUSE's grammar is tried first:
//
//	OCI tag = [A-Za-z0-9_][A-Za-z0-9._-]{0,127}
//	suse    = app [ "-rev" num [ "-build" num *( "." num ) ] ]
//	app     = [ "v" ] num *( "." num )
//	num     = "0" / nonzero-digit *digit
//
// It is case sensitive, anchored, and accepts ASCII digits only; the length of a number is not limited. A tag that
// neither matches it nor is malformed is read by the general grammar:
//
//	general = [ word sep ] version [ pre ] *( sep part )
//	version = [ "v" ] 1*digit *( "." 1*digit ) / a date as 2024-01-15, with a time or without
//	pre     = [ sep ] ( "alpha" / "beta" / "rc" / ... ) [ [ sep ] number ]
//	sep     = "-" / "_" / "."
//
// After a word, a version must have a dot or be a date. Two kinds of parts are numbers: a revision ("3" or "3.36" alone
// after the version, "2" between 7.9.1 and ubi8, "r3", "p3", "k3s3", "rke2r3", "flannel3", "hotfix-3") and a build
// ("build3", "ls3", a date). All other parts belong to the name. A tag with a part that may be a hash cannot be
// ordered.
//
// A pattern replaces both grammars: it selects the tags of a series and the places of their numbers.
//
// A tag that cannot be ordered is in one of three classes, each with its own error:
//
//   - malformed ([ErrMalformed]): the tag uses SUSE's scheme and breaks its grammar. Its
//     publisher should be told.
//   - unrecognized ([ErrUnrecognized]): a tag without a version, or with one that cannot be ordered (latest, a hash,
//     a signature). Ignored, but counted.
//   - invalid ([ErrInvalid]): not a tag that a registry can store.
//
// A tag is malformed if one of the scheme's marks follows a dotted number:
//
//   - "-rev", in any case of letters and not followed by a letter, is a mark.
//   - "-build" directly after the number is a mark, if only digits and dots
//     follow and these are not eight or more digits without a dot. OBS's
//     RELEASE always has a dot (check-in.rebuild), while others write a date
//     there: v1.14.7-build20260909, v1.21.10-build2021041301.
//
// # Promises
//
// A version may have four parts, and -rev1 is newer than a tag without a revision. No successor of a tag has another
// name, is lower, or is a pre-release where the tag is a release, unless the scheme allows pre-releases. A tag says
// nothing about content: decide by digest, show the tag. A bare dotted number is a short tag even where a publisher
// means a build number (BCI's 15.5.36.5.67); only configuration can say so.
//
// All functions are pure and safe for concurrent use.
package tags
