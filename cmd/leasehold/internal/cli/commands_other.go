//go:build !unix

package cli

import "github.com/spf13/cobra"

// commands leaves run out: process groups and the guard are Unix's.
func (a *app) commands() []*cobra.Command { return a.everywhere() }
