package lease

import (
	"errors"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/engine"
	"github.com/leasehold-go/leasehold/internal/keys"
)

// fail makes the error of an operation on the resource called label.
func (m *Manager) fail(op, label string, errs ...error) error {
	return engine.Fail(m.cfg.Package, op, label, errs...)
}

// Reject makes the error of an operation whose input is bad; nothing was sent.
func (m *Manager) Reject(op, key string, why error) error {
	label := keys.Escape(m.cfg.Family.Name)
	if r, err := m.cfg.Family.Resource(key); err == nil {
		label = r.Label
	}
	return m.fail(op, label, why)
}

// Ended is the error of an operation that ran under l, joined with the loss of l
// where it was lost meanwhile. err stands alone where l was still held.
func Ended(err, release error) error {
	if errors.Is(release, leasehold.ErrLost) {
		return errors.Join(err, release)
	}
	return err
}
