package certmagiclock_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/integrations/certmagiclock"
	"github.com/leasehold-go/leasehold/integrations/internal/captest"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/leaseholdtest"
	"github.com/leasehold-go/leasehold/mutex"
)

func TestMain(m *testing.M) { redistest.Main(m) }

const name = "example.com"

func newMutex(t testing.TB, rdb redis.UniversalClient, family string, ttl time.Duration) *mutex.Mutex {
	t.Helper()
	return captest.Mutex(t, rdb, mutex.Config{Name: family, TTL: ttl})
}

func newStorage(t testing.TB, dir string, m *mutex.Mutex) *certmagiclock.Storage {
	t.Helper()
	return redistest.Must(certmagiclock.New(&certmagic.FileStorage{Path: dir}, m))(t)
}

// authority issues certificates, and counts them.
type authority struct {
	key    *ecdsa.PrivateKey
	issued atomic.Int32
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	key := redistest.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	return &authority{key: key}
}

func (a *authority) IssuerKey() string { return "authority-of-the-test" }

func (a *authority) Issue(_ context.Context, csr *x509.CertificateRequest) (*certmagic.IssuedCertificate, error) {
	a.issued.Add(1)
	<-time.After(100 * time.Millisecond)
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(int64(a.issued.Load())), Subject: pkix.Name{CommonName: name}, DNSNames: csr.DNSNames,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(90 * 24 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, csr.PublicKey, a.key)
	if err != nil {
		return nil, err
	}
	return &certmagic.IssuedCertificate{Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}, nil
}

// instance is the CertMagic of one server.
func instance(t testing.TB, storage certmagic.Storage, issuer certmagic.Issuer) *certmagic.Config {
	t.Helper()
	var magic *certmagic.Config
	cache := certmagic.NewCache(certmagic.CacheOptions{
		GetConfigForCert: func(certmagic.Certificate) (*certmagic.Config, error) { return magic, nil },
		Logger:           zap.NewNop(),
	})
	t.Cleanup(cache.Stop)
	magic = certmagic.New(cache, certmagic.Config{Storage: storage, Issuers: []certmagic.Issuer{issuer}, Logger: zap.NewNop()})
	return magic
}

// blocking is an authority that says when it begins, and goes on when it is told to.
type blocking struct {
	*authority
	begun, end chan struct{}
}

func (b *blocking) Issue(ctx context.Context, csr *x509.CertificateRequest) (*certmagic.IssuedCertificate, error) {
	close(b.begun)
	<-b.end
	return b.authority.Issue(ctx, csr)
}

func TestNewNamesEveryBadField(t *testing.T) {
	_, err := certmagiclock.New(nil, nil)
	redistest.WantErr(t, err, leasehold.ErrInvalid)
	redistest.WantText(t, err, "certmagiclock", "storage is nil", "m is nil")
}

// withPassword is a storage with a field that its String hides.
type withPassword struct {
	*certmagic.FileStorage
	Password string
}

func TestStringHidesWhatTheStorageHides(t *testing.T) {
	files := withPassword{&certmagic.FileStorage{Path: "/files"}, "secret"}
	for _, inner := range []certmagic.Storage{files, struct{ certmagic.Storage }{files}} {
		s := redistest.Must(certmagiclock.New(inner, newMutex(t, redistest.MiniClient(t), "storage", 0)))(t)
		text := fmt.Sprint(s)
		redistest.Check(t, !strings.Contains(text, "secret"), "it says %s", text)
	}
}

func TestTenServersObtainOneCertificate(t *testing.T) {
	redistest.Each(t, func(t *testing.T, target redistest.Target) {
		dir, family, issuer := t.TempDir(), redistest.Name(t), newAuthority(t)
		rdb := target.Client(t)
		var all sync.WaitGroup
		var mutexes []*mutex.Mutex
		for range 10 {
			m := newMutex(t, rdb, family, 0)
			mutexes = append(mutexes, m)
			magic := instance(t, newStorage(t, dir, m), issuer)
			all.Go(func() {
				redistest.NoError(t, magic.ObtainCertSync(t.Context(), name))
			})
		}
		all.Wait()
		redistest.Expect(t, issuer.issued.Load(), 1, "%d certificates were issued")
		s, err := mutexes[0].Inspect(t.Context(), "issue_cert_"+name)
		redistest.Check(t, err == nil && !s.Held && s.Waiting == 0 && s.LastToken > 0, "it was not used, or not given back: %+v, %v", s, err)
	})
}

// A lock that failed in an outage puts a renewal off. A new name is forgotten until CertMagic is told to manage it again.
func TestOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb, issuer := leaseholdtest.Client(t), newAuthority(t)
		magic := instance(t, newStorage(t, t.TempDir(), newMutex(t, rdb, "f", 0)), issuer)
		const day = 24 * time.Hour
		issued := func(want int32, is string) {
			redistest.Require(t, issuer.issued.Load(), want, "%d certificates were issued; the documentation says that "+is)
		}
		manage := func() { redistest.WantErr(t, magic.ManageAsync(t.Context(), []string{name})) }
		end := leaseholdtest.Outage(rdb)
		manage()
		time.Sleep(time.Minute)
		end()
		time.Sleep(40 * day) // CertMagic gives up after 30
		issued(0, "a new name is not obtained")
		manage()
		time.Sleep(time.Minute)
		issued(1, "it is obtained when it is managed again")
		end = leaseholdtest.Outage(rdb)
		time.Sleep(61 * day) // of 90
		end()
		issued(1, "Lock returns an error")
		time.Sleep(day)
		issued(2, "a renewal comes later")
	})
}

// The name of a crashed server is free after the TTL, however long CertMagic wanted to hold it.
func TestCrashedHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers := leaseholdtest.Clients(t, 2)
		crashes := newStorage(t, t.TempDir(), newMutex(t, servers[0], "f", time.Minute))
		s := newStorage(t, t.TempDir(), newMutex(t, servers[1], "f", time.Minute))
		redistest.WantErr(t, crashes.Lock(t.Context(), name))
		redistest.WantErr(t, crashes.RenewLockLease(t.Context(), name, 10*time.Minute)) // as between two attempts
		redistest.Gives(s.TryLock(t.Context(), name))(t, false)
		_ = servers[0].Close()
		began := time.Now()
		redistest.WantErr(t, s.Lock(t.Context(), name))
		redistest.AtMost(t, time.Since(began), time.Minute+time.Second, "the name was free after %v")
		redistest.NoError(t, s.Unlock(t.Context(), name))
	})
}

// lose takes the lock of key away from its holder.
func lose(t *testing.T, m *mutex.Mutex, key string) {
	t.Helper()
	s, err := m.Inspect(t.Context(), key)
	redistest.CheckNow(t, err == nil && s.Holder != nil, "%+v, %v", s, err)
	redistest.WantErr(t, m.Revoke(t.Context(), key, s.Holder.ID, "a test"))
}

func wantHeld(t *testing.T, m *mutex.Mutex, want bool) {
	t.Helper()
	s, err := m.Inspect(t.Context(), name)
	redistest.CheckNow(t, err == nil && s.Held == want, "held: %v, %v; want %v", s.Held, err, want)
}

func TestLockLostBetweenTwoAttemptsIsTakenAgain(t *testing.T) {
	redistest.Each(t, func(t *testing.T, target redistest.Target) {
		rdb, family := target.Client(t), redistest.Name(t)
		m := newMutex(t, rdb, family, 0)
		s, other := newStorage(t, t.TempDir(), m), newStorage(t, t.TempDir(), newMutex(t, rdb, family, 0))
		redistest.WantErr(t, s.Lock(t.Context(), name))
		renew := func() error { return s.RenewLockLease(t.Context(), name, time.Minute) }
		redistest.WantErr(t, renew())
		lose(t, m, name)
		redistest.WantErr(t, renew())
		wantHeld(t, m, true)
		lose(t, m, name)
		redistest.Gives(other.TryLock(t.Context(), name))(t, true)
		redistest.WantErr(t, renew(), leasehold.ErrBusy)
		// The end of the first one gives back nothing of the other one's.
		redistest.NoError(t, s.Unlock(t.Context(), name))
		wantHeld(t, m, true)
		redistest.WantErr(t, s.Unlock(t.Context(), name), leasehold.ErrReleased)
		redistest.WantErr(t, renew(), leasehold.ErrReleased)
		err := s.Unlock(t.Context(), "a\nb")
		redistest.Check(t, !strings.Contains(err.Error(), "\n"), "a name is not escaped in %q", err)
		redistest.NoError(t, other.Unlock(t.Context(), name))
		wantHeld(t, m, false)

		// Two goroutines of a server have the name, because the first one lost it: its end gives back nothing of the second
		// one's.
		redistest.WantErr(t, s.Lock(t.Context(), name))
		lose(t, m, name)
		redistest.Gives(s.TryLock(t.Context(), name))(t, true)
		for _, held := range []bool{true, false} {
			redistest.NoError(t, s.Unlock(t.Context(), name))
			wantHeld(t, m, held)
		}
	})
}

// A revoked lock does not stop CertMagic: it cannot be told. Two certificates are issued.
func TestRevokedInTheMiddle(t *testing.T) {
	rdb, family, dir := redistest.MiniClient(t), redistest.Name(t), t.TempDir()
	m := newMutex(t, rdb, family, 0)
	first := &blocking{authority: newAuthority(t), begun: make(chan struct{}), end: make(chan struct{})}
	second := newAuthority(t)
	done := make(chan error, 1)
	magic := instance(t, newStorage(t, dir, m), first)
	go func() { done <- magic.ObtainCertSync(context.Background(), name) }()
	redistest.Get(t, "the first attempt", first.begun)
	lose(t, m, "issue_cert_"+name)
	redistest.WantErr(t, instance(t, newStorage(t, dir, newMutex(t, rdb, family, 0)), second).ObtainCertSync(t.Context(), name))
	close(first.end)
	redistest.NoError(t, redistest.Get(t, "the end of the first attempt", done))
	redistest.Expect(t, first.issued.Load()+second.issued.Load(), 2, "%d certificates; the documentation says 2")
}
