# The image of the agent: "make image". One static binary, no shell, no root.
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY Makefile ./
COPY cmd ./cmd
COPY gitstore ./gitstore
COPY kube ./kube
COPY sync ./sync
ARG VERSION=unknown
RUN make build VERSION="${VERSION}"

# static has CA certificates and time zones, nothing else.
FROM gcr.io/distroless/static-debian12:nonroot
COPY --from=build /src/bin/crmirror /crmirror
USER 65532:65532
ENTRYPOINT ["/crmirror"]
CMD ["run", "--config", "/etc/crmirror/config/config.yaml"]
