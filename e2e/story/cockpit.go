// SPDX-License-Identifier: Apache-2.0

package story

import (
	"errors"

	"github.com/kubic-project/image-update-agent/e2e/browser"
)

// Disabled returns an error while a button is enabled.
func Disabled(page *browser.Tab, button string) error {
	if page.Attribute(button, "aria-disabled") != "true" {
		return errors.New("it can be pressed")
	}
	return nil
}

// PageState is the selector of the page's headline.
const PageState = ".state"
