// SPDX-License-Identifier: Apache-2.0

package status

import "github.com/kubic-project/image-update-agent/agent/release"

// End is that of an error: it waits, or did not work.
func (o *Outcome) End(err error) {
	o.Result, o.Reason, o.ErrorKind = ResultFailed, err.Error(), ErrorKindOf(err)
	if release.IsWaiting(err) {
		o.Result = ResultHeld
	}
}
