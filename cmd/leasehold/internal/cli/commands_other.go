//go:build !unix

package cli

import "github.com/spf13/cobra"

// ofUnix leaves run out: process groups and the guard are Unix's.
func (a *app) ofUnix() []*cobra.Command { return nil }
