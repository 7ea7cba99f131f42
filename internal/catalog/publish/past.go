// SPDX-License-Identifier: Apache-2.0

package publish

import "context"

// maxPast is how many versions are read back at most.
const maxPast = 10_000

// back calls visit with a version and then with those before it, the newest first, until it returns
// false. isCut reports that older versions exist and cannot be read: they were pruned, or no key that
// is trusted has signed them.
func (p *Publisher) back(ctx context.Context, v Version, visit func(v Version) (bool, error)) (isCut bool, err error) {
	for range maxPast {
		goOn, err := visit(v)
		if err != nil || !goOn || v.Previous == "" {
			return false, err
		}
		p.step("reading the version before %d", v.Version)
		before, err := p.read(ctx, v.Previous.String())
		switch {
		case ctx.Err() != nil:
			return false, ctx.Err()
		case err != nil && isFinding(err), err == nil && (before.Channel != v.Channel || before.Name != v.Name):
			return true, nil
		case err != nil:
			return false, err
		}
		v = before
	}
	return true, nil
}
