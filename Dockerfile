# The image of the agent: "make image". One static binary, no shell, no root. The
# same sources, version and Go give the same binary, wherever it is built.
FROM --platform=$BUILDPLATFORM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY cmd ./cmd
COPY gitstore ./gitstore
COPY kube ./kube
COPY sync ./sync
ARG TARGETOS TARGETARCH
ARG VERSION=unknown
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -buildvcs=false -ldflags "-s -w -buildid= -X main.version=$VERSION" -o /crmirror ./cmd/crmirror

# static has CA certificates and time zones, nothing else.
FROM gcr.io/distroless/static-debian12:nonroot
ARG VERSION=unknown
LABEL org.opencontainers.image.title=crmirror \
      org.opencontainers.image.version=$VERSION \
      org.opencontainers.image.source=https://github.com/crmirror/crmirror
COPY --from=build /crmirror /crmirror
USER 65532:65532
ENTRYPOINT ["/crmirror"]
CMD ["run", "--config", "/etc/crmirror/config/config.yaml"]
