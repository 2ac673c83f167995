package certmagiclock_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/leasehold-go/leasehold/integrations/certmagiclock"
	"github.com/leasehold-go/leasehold/integrations/internal/captest"
	"github.com/leasehold-go/leasehold/internal/redistest"
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
