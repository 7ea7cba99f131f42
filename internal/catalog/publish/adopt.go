// SPDX-License-Identifier: Apache-2.0

package publish

import "context"

// adopt has a draft be a version that is stored already, and that says the same: its publisher was
// stopped before the channel named it, or the registry does not let the channel's tag move. Else each
// try would leave one more version behind.
func (p *Publisher) adopt(ctx context.Context, d *draft, tags []string) error {
	later, err := p.laterVersions(ctx, d.base.Version, d.manifest.Channel, tags)
	if err != nil {
		return err
	}
	for _, v := range later {
		same := v.Manifest
		same.Version, same.Created, same.Log = d.manifest.Version, d.manifest.Created, d.manifest.Log
		if _, sum, err := v.Encode(); err != nil || sum != v.Digest || len(p.keys) > 0 && v.SignedBy == "" {
			continue
		}
		_, want, errWant := d.manifest.Encode()
		_, is, errIs := same.Encode()
		if errWant == nil && errIs == nil && is == want {
			d.manifest, d.isStored = v.Manifest, true
			return nil
		}
	}
	return nil
}
