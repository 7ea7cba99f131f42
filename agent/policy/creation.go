// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"time"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/tags"
)

// IsOlder reports whether a release is older than the running one under the same tag, by its long tag. If the creation
// times contradict that, it is not older, and a warning is returned: OBS' build counter restarts when an image moves to
// another project.
func IsOlder(running, rel release.Release, s tags.Scheme, now time.Time) (older bool, warning string) {
	was, errWas := s.Parse(running.Long)
	is, errIs := s.Parse(rel.Long)
	if errWas != nil || errIs != nil || was == is {
		return IsEarlier(rel, running, now), ""
	}
	order := tags.Compare(is, was)
	warning = contradiction(order, running, rel, now)
	return order < 0 && warning == "", warning
}

// Contradiction returns how the order of two releases by name contradicts their order by creation time: a release with
// a higher tag was created earlier, or one with a lower tag later. Then neither order decides which one is newer, and a
// person must. It is empty if the orders agree, or if a time is not evidence.
func Contradiction(was, rel release.Release, s tags.Scheme, now time.Time) string {
	from, errFrom := s.Parse(was.Name())
	to, errTo := s.Parse(rel.Name())
	if errFrom != nil || errTo != nil {
		return ""
	}
	switch change := tags.ChangeBetween(from, to); {
	case change > tags.Same:
		return contradiction(1, was, rel, now)
	case change == tags.Lower:
		return contradiction(-1, was, rel, now)
	}
	return ""
}

// contradiction is Contradiction of two releases with ordered names: order is above 0 if rel's name is higher.
func contradiction(order int, was, rel release.Release, now time.Time) string {
	than := "newer by name than %s, but was created earlier"
	switch {
	case order > 0 && IsEarlier(rel, was, now):
	case order < 0 && IsEarlier(was, rel, now):
		than = "older by name than %s, but was created later"
	default:
		return ""
	}
	return fmt.Sprintf("%s is "+than+" (%s, %s)", rel.Name(), was.Name(), day(rel.Created), day(was.Created))
}

// IsEarlier reports whether a was created before b. It is false if a time is not evidence.
func IsEarlier(a, b release.Release, now time.Time) bool {
	return IsPlausibleCreation(a.Created, now) && IsPlausibleCreation(b.Created, now) && a.Created.Before(b.Created)
}

// firstImages is a lower limit for creation times of images: Docker was shown in March 2013.
var firstImages = time.Date(2013, time.March, 1, 0, 0, 0, 0, time.UTC)

// IsPlausibleCreation reports whether an image can have been created at a time. A time in the future is not plausible:
// the image would be newer than any later build. Reproducible builds write 1970, 1980 or the year 1, which says nothing
// about when they were made.
func IsPlausibleCreation(at, now time.Time) bool { return !at.Before(firstImages) && !at.After(now) }

func day(t time.Time) string { return t.UTC().Format(time.RFC3339) }
